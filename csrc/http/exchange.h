/* SPDX-License-Identifier: MIT
 *
 * exchange: one request and its answer, for servers and for clients, whichever protocol carries them.
 *
 *   server   on_request -> on_body* -> on_end          answer -> write* -> end
 *   client   write* -> end                             on_answer -> on_body* -> on_end
 *
 * on_close is the last hook of every exchange. After it the exchange is not valid. A server may answer at any time,
 * also before the body of the request has arrived; after its `end` no more of the request is delivered.
 *
 * After an answer with status 101 the exchange carries bytes of another protocol both ways: on_body and `write` have
 * them, on_end is the end of the peer's bytes, and `end` the end of ours and of the connection.
 *
 * The functions below call no hook except `date`, and may be called inside and outside of hooks. The functions of the
 * carrier call the hooks, see http/connection.h.
 */
#ifndef KW_HTTP_EXCHANGE_H
#define KW_HTTP_EXCHANGE_H

#include "base/blob.h"

/* A field. Names are compared without regard to case: HTTP/1.1 has them as they were sent, HTTP/2 in lower case. */
typedef struct kw_http_field {
  kw_slice name;
  kw_slice value;
} kw_http_field;

/* The slices of a received head are valid only inside of the hook. Fields that belong to one connection, and not to the
 * exchange, are left out: connection, keep-alive, proxy-connection, transfer-encoding, upgrade; and host, which is the
 * authority. The owner of an exchange must not send these either, nor content-length. */
typedef struct kw_http_request {
  kw_slice method;
  kw_slice scheme;    /* http or https */
  kw_slice authority; /* empty: HTTP/1.0 without the field host */
  kw_slice path;      /* with the query, see http/target.h; or * */
  kw_slice upgrade;   /* protocols that the client offers to switch to; or empty */
  const kw_http_field *fields;
  size_t n_fields;
  int64_t length; /* of the body; -1: unknown until its end */
} kw_http_request;

typedef struct kw_http_answer {
  int status;       /* below 200, except 101: an interim answer, which another one follows */
  kw_slice upgrade; /* of status 101: the protocol that follows */
  const kw_http_field *fields;
  size_t n_fields;
  int64_t length; /* of the body; -1: unknown until its end */
} kw_http_answer;

typedef struct kw_exchange kw_exchange;

/* Functions of the owner of exchanges. A hook may call every function of an exchange, but none of the carrier. Slices
 * are valid only inside of the hook. `ctx` is the one that the carrier was made with. A server may leave the hooks
 * marked "Client" NULL, and a client those marked "Server". */
typedef struct kw_exchange_hooks {
  /* Server: the head of a request has arrived. The owner may set exchange->max_body, and its own fields. */
  void (*on_request)(kw_exchange *exchange, const kw_http_request *request, void *ctx);
  /* Client: the head of an answer has arrived, or an interim answer. */
  void (*on_answer)(kw_exchange *exchange, const kw_http_answer *answer, void *ctx);
  /* A part of the body has arrived. */
  void (*on_body)(kw_exchange *exchange, kw_slice bytes, void *ctx);
  /* The body is complete; also called if there was none. Trailers are the fields after a body. */
  void (*on_end)(kw_exchange *exchange, const kw_http_field *trailers, size_t n, void *ctx);
  /* kw_exchange_has_room was false, and is true again. May be NULL. */
  void (*on_room)(kw_exchange *exchange, void *ctx);
  /* Server: the client has closed its side, and waits for the answer or is gone. The owner may abort the exchange.
   * NULL: the answer is sent. */
  void (*on_gone)(kw_exchange *exchange, void *ctx);
  /* The exchange has ended. `why`: it has failed, for this reason; NULL: the answer is complete. The request may be
   * incomplete then: the rest is dropped, or not sent. */
  void (*on_close)(kw_exchange *exchange, const char *why, void *ctx);
  /* Server: true if the connection has used up its turn. The next request then waits for the next step, which is due at
   * once. NULL: turns are unlimited. */
  bool (*is_turn_over)(void *ctx);
  /* Server: returns the value of the field `date`, see http/date.h; empty: the field is left out. NULL: the same. Not
   * called for an answer whose fields have a date. */
  kw_slice (*date)(void *ctx);
} kw_exchange_hooks;

/* The carrier of an exchange: an HTTP/1.1 connection or an HTTP/2 stream. It implements the functions below. `blob` is
 * the blob that has the bytes; if it is NULL, they are copied. */
typedef struct kw_exchange_carrier {
  bool (*answer)(kw_exchange *exchange, const kw_http_answer *answer);
  bool (*write)(kw_exchange *exchange, kw_blob *blob, kw_slice bytes);
  bool (*end)(kw_exchange *exchange, const kw_http_field *trailers, size_t n);
  void (*pause)(kw_exchange *exchange, bool is_paused);
  void (*abort)(kw_exchange *exchange);
  bool (*has_room)(const kw_exchange *exchange);
  size_t (*unsent)(const kw_exchange *exchange);
} kw_exchange_carrier;

/* What a client knows about an answer. */
typedef enum kw_fate {
  KW_FATE_UNANSWERED,  /* no byte of it has arrived */
  KW_FATE_UNPROCESSED, /* the exchange has failed, and the server has not processed the request */
  KW_FATE_ANSWERED,    /* bytes of it have arrived */
  KW_FATE_MALFORMED    /* the exchange has failed, because the server breaks the rules of HTTP */
} kw_fate;

struct kw_exchange {
  const kw_exchange_carrier *carrier;
  void *owner;       /* for the owner; at a server NULL until the owner sets it */
  uint64_t max_body; /* limit of the received body: a longer one gets 413, or fails at a client */
  kw_fate fate;      /* client */
};

/* Server: sends the head of an answer, or an interim answer, which HTTP/1.0 does not get. Returns false, with nothing
 * sent, if a field or the status is not valid, if an answer was sent before, or if the connection has ended; also if
 * memory is short: the exchange fails then. */
static inline bool kw_exchange_answer(kw_exchange *exchange, const kw_http_answer *answer) {
  return exchange->carrier->answer(exchange, answer);
}

/* Adds a copy of `bytes` to the body that is sent. The body of an answer that has none (HEAD, 204, 304) is dropped.
 * Returns false, with nothing sent, if the body is longer than the head says, or no body may be sent now. If memory is
 * short it returns false, too, and the exchange fails. */
static inline bool kw_exchange_write(kw_exchange *exchange, kw_slice bytes) {
  return exchange->carrier->write(exchange, NULL, bytes);
}

/* Does what kw_exchange_write does, for a part of a blob, which is retained and not copied if it is long. The account
 * is charged for the part in either case, because the output of a slow peer may be the last one that holds the blob. */
static inline bool kw_exchange_write_blob(kw_exchange *exchange, kw_blob *blob, kw_slice part) {
  return exchange->carrier->write(exchange, blob, part);
}

/* Ends the message that is sent. Trailers are left out where the protocol has none: with a known length, or HTTP/1.0.
 * Returns false if no message can be ended now, or if a trailer is not valid, with nothing sent; also if the body is
 * shorter than its head says, or if memory is short: the exchange fails then. */
static inline bool kw_exchange_end(kw_exchange *exchange, const kw_http_field *trailers, size_t n) {
  return exchange->carrier->end(exchange, trailers, n);
}

/* Pauses the delivery of the body. Until it is resumed, no bytes are read from the peer (backpressure). */
static inline void kw_exchange_pause(kw_exchange *exchange) {
  exchange->carrier->pause(exchange, true);
}

/* Resumes the delivery of the body: on_body is called by the next function of the carrier, such as kw_http_flush. */
static inline void kw_exchange_resume(kw_exchange *exchange) {
  exchange->carrier->pause(exchange, false);
}

/* Aborts the exchange: a message that was not sent completely stays incomplete. */
static inline void kw_exchange_abort(kw_exchange *exchange) {
  exchange->carrier->abort(exchange);
}

/* Returns how many bytes of the message were not sent yet. */
static inline size_t kw_exchange_unsent(const kw_exchange *exchange) {
  return exchange->carrier->unsent(exchange);
}

/* False if the output is full: the owner should write no more before on_room. */
static inline bool kw_exchange_has_room(const kw_exchange *exchange) {
  return exchange->carrier->has_room(exchange);
}

#endif
