/* SPDX-License-Identifier: MIT
 *
 * input: what comes to a stream, split into messages.
 *
 * A stream that may not be heard now is parked, and holds what comes: its flow control window does not open again, but
 * the connection's does. The session parks
 *   - all streams, when the connection has had its time, until the next step;
 *   - unary ones, while the socket does not take the answers that there are;
 *   - one that takes many messages, while it has too many answers of its own;
 * and an owner pauses its stream.
 */
#ifndef KW_H2_INPUT_H
#define KW_H2_INPUT_H

#include "h2/state.h"

/* Data that came; `is_last`: no more will. And the end of it. */
void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last);
void kw_input_end(kw_stream *stream);

/* A client's stream is closed: what is held of it is told, whether or not its owner has paused it. */
void kw_input_finish(kw_stream *stream);

/* Throws away what is held of a stream that has got its status. */
void kw_input_drop(kw_stream *stream);

/* Streams that are parked, and requests that are deferred, go on, in turn, while there is room for output. */
void kw_input_resume(kw_session *session);

#endif
