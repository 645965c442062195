/* SPDX-License-Identifier: MIT
 *
 * input: what comes to a stream, split into messages.
 *
 * While too much output waits, what comes is held back, and the stream parked: its flow control window does not open
 * again. So a peer that asks and does not read is kept waiting, and nothing but its own windows fills up. The same is
 * done to one that has had its time, until the next step.
 *
 * A client's stream whose owner has paused it holds what its own window lets come, and keeps no other stream waiting.
 */
#ifndef KW_H2_INPUT_H
#define KW_H2_INPUT_H

#include "h2/state.h"

/* Data that came; `is_last`: no more will. And the end of it. */
void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last);
void kw_input_end(kw_stream *stream);

/* A client's stream is closed: what is held of it is told, whether or not its owner has paused it. */
void kw_input_finish(kw_stream *stream);

/* Streams that are parked go on, in turn, while there is room for output. */
void kw_input_resume(kw_session *session);

#endif
