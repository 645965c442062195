/* SPDX-License-Identifier: MIT
 *
 * carrier: a stream that carries an HTTP exchange, see http/exchange.h, instead of a gRPC call.
 *
 *   DATA          -> stream->input while the owner pauses -> on_body
 *   write         -> stream->out, which is sent and counted like the answers of a call
 *   trailers, END -> stored while the owner pauses -> on_end
 *
 * A request that RFC 9113 forbids resets its stream with PROTOCOL_ERROR. Any other request that is not valid is refused
 * with the status that HTTP/1.1 has for it, see http/head.h; also one whose body is too large (413), or does not arrive
 * in time (408). A head may have KW_HEAD_FIELDS fields.
 *
 * on_close is called when the whole answer was sent, when the stream closes, or when the exchange fails: the stream may
 * then still send a refusal. If an answer ends before its request, the rest of the request is dropped for a second, so
 * that the client can read the answer; then the stream is reset with NO_ERROR.
 *
 * A client's exchange ends with its answer: the rest of the request is not sent. If its owner pauses, the stream
 * outlives that of nghttp2 until all was delivered.
 */
#ifndef KW_H2_CARRIER_H
#define KW_H2_CARRIER_H

#include "h2/state.h"

/* A copy of fields, in one block of memory. */
typedef struct kw_kept_fields {
  size_t size; /* of the block */
  size_t n;
  kw_http_field fields[];
} kw_kept_fields;

typedef struct kw_carrier {
  kw_exchange exchange;
  kw_stream *stream;
  const char *why; /* why the owner or we have reset the stream; or NULL */

  /* The message that arrives */
  int64_t length;           /* of the body; -1: not known */
  uint64_t n_body;          /* bytes that were delivered */
  kw_kept_fields *trailers; /* received trailers that were not delivered yet; or NULL */

  /* The message that is sent */
  int64_t left;                   /* missing bytes of the body; -1: not known */
  kw_kept_fields *trailers_after; /* trailers to send after the body; or NULL */

  bool is_open : 1;    /* on_close was not called */
  bool is_sent : 1;    /* a server's answer was sent */
  bool is_head : 1;    /* the method is HEAD */
  bool expects : 1;    /* a server's client waits for status 100 */
  bool is_dropped : 1; /* the answer has no body: bytes that the owner writes are dropped */
  bool wants_room : 1; /* on_room is due */
  uint8_t n_interim;   /* received interim answers */
} kw_carrier;

static inline kw_carrier *kw_carrier_of(const kw_exchange *exchange) {
  return KW_CONTAINER_OF(exchange, kw_carrier, exchange);
}

/* Server: takes the request in the header block, and calls on_request; or refuses it, and calls on_refused. `ends`: it
 * has no body. */
void kw_carrier_take_request(kw_stream *stream, bool ends);

/* Client: takes the answer in the header block, an interim answer, or trailers. `ends`: they end the stream. */
void kw_carrier_take_answer(kw_stream *stream, bool ends);

/* Takes the trailers in the header block. `ends`: they end the stream, as they must. */
void kw_carrier_take_trailers(kw_stream *stream, bool ends);

/* Delivers a part of the body. */
void kw_carrier_take_body(kw_stream *stream, kw_slice bytes);

/* Delivers the end of the body, and the trailers. */
void kw_carrier_take_end(kw_stream *stream);

/* Ends the exchange because of `why`, and resets the stream. */
void kw_carrier_fail(kw_stream *stream, const char *why, uint32_t code);

/* Server: the whole answer was sent. */
void kw_carrier_sent(kw_stream *stream);

/* The deadline of the stream has passed. Resets the stream if the answer was sent. Otherwise fails the exchange with
 * 408; or waits again if the body is complete, or input waits for us. */
void kw_carrier_expire(kw_stream *stream);

/* Calls on_room if it is due: the stream can send more than was written. */
void kw_carrier_pull(kw_stream *stream);

/* Submits the trailers that follow the body, and forgets them. */
void kw_carrier_submit_trailers(kw_stream *stream);

/* Client: keeps a stream that nghttp2 has closed in order, if the owner has paused and will get the rest of the answer.
 * Returns false if there is nothing to keep. */
bool kw_carrier_detach(kw_stream *stream, uint32_t code);

/* Client: delivers the end of a stream that was kept, unless it was aborted, and frees the stream. */
void kw_carrier_finish(kw_stream *stream);

/* Calls on_close, if it was not called before, for a stream that nghttp2 has closed with `code`. */
void kw_carrier_end(kw_stream *stream, uint32_t code);

/* Does what kw_carrier_end does, if the session ends, and frees the carrier. */
void kw_carrier_free(kw_stream *stream);

/* Returns what the account is charged for the carrier of a stream. */
size_t kw_carrier_charge(const kw_stream *stream);

#endif
