/* SPDX-License-Identifier: MIT
 *
 * input: DATA that arrives on a stream, split into gRPC messages, or the body of an exchange, delivered to the owner.
 *
 * A stream *waits* while nothing may be delivered to its owner; stream->wait has the reason. DATA of the stream then
 * waits in stream->input. The stream's flow-control window stays reduced by these bytes, so the peer stops sending on
 * this stream; they are returned to the window of the connection at once, so other streams continue. Streams that wait
 * for the next turn, for output or for space are resumed oldest first. A client's streams wait only for their owner.
 */
#ifndef KW_H2_INPUT_H
#define KW_H2_INPUT_H

#include "h2/state.h"

/* Takes DATA bytes that nghttp2 has received: delivers them, or copies them into stream->input. If there is no space
 * for them, ends the call with status 8. `is_last`: they end the stream, and kw_input_end follows. */
void kw_input_take(kw_stream *stream, kw_slice bytes, bool is_last);

/* Notes that the peer has half-closed the stream. The owner is notified once all input was delivered. */
void kw_input_end(kw_stream *stream);

/* Client: nghttp2 closes the stream. Delivers the rest of the input, even if the stream waits. */
void kw_input_finish(kw_stream *stream);

/* Drops stream->input. Called for a stream that has its status and needs no more input. */
void kw_input_drop(kw_stream *stream);

/* Asks the owner whether the connection has used up its turn. Called after each piece of work. */
void kw_input_check_turn(kw_session *session);

/* Resumes waiting streams and deferred requests, as far as turn and output allow. Refuses requests that were deferred
 * for too long. */
void kw_input_resume(kw_session *session);

#endif
