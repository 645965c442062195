/* SPDX-License-Identifier: MIT
 *
 * state: the inside of a connection, shared by the files of this folder and used nowhere else.
 *
 *   connection.c   life of a connection            receive.c   messages that arrive
 *   timers.c       everything that has a time      send.c      messages that are sent: the carrier of exchanges
 *
 * Only kw_receive, kw_http_wrote and kw_http_settle call hooks; the hook `date` may be called anywhere. Functions of
 * exchanges change the state and the output, and the next kw_receive acts on the changes.
 */
#ifndef KW_HTTP_STATE_H
#define KW_HTTP_STATE_H

#include "http/body.h"
#include "http/connection.h"
#include "http/head.h"

#define KW_HTTP_NEVER INT64_MAX /* a time that never comes */
#define KW_HTTP_WHY 128         /* bytes of http->why, with the 0 at its end */

/* The part of the incoming message that is expected. A server expects a request, a client an answer. */
typedef enum kw_http_in {
  KW_IN_HEAD,
  KW_IN_BODY,
  KW_IN_TRAILERS,
  KW_IN_RAW, /* bytes of another protocol, after status 101 */
  KW_IN_END  /* the message is complete: a server waits for the end of the answer */
} kw_http_in;

/* The part of the outgoing message that the owner sends next. */
typedef enum kw_http_sends {
  KW_SENDS_HEAD,
  KW_SENDS_BODY,
  KW_SENDS_RAW,
  KW_SENDS_END
} kw_http_sends;

struct kw_http {
  kw_exchange exchange;
  const kw_http_options *options;
  const kw_exchange_hooks *hooks;
  void *ctx;
  kw_account account;
  uint32_t n_exchanges; /* exchanges that have ended */

  /* Input */
  kw_http_in in;
  uint8_t
      *input; /* queued bytes: an incomplete head, or bytes that cannot be used yet; NULL: none */
  size_t n_input;
  size_t cap_input;
  kw_head_search search; /* for the end of a head or of trailers */
  kw_body body;
  uint64_t n_body;    /* bytes of the body that have arrived */
  uint64_t n_dropped; /* bytes that were dropped after the end of an answer, or of the connection */

  /* Output */
  kw_http_sends sends;
  kw_chain out;
  int64_t left; /* bytes that are missing of the sent body; -1: unknown */

  /* The exchange. While there is none, all of these are false, except `expects`. */
  bool is_open;      /* on_close was not called */
  bool is_head;      /* the method is HEAD */
  bool is_http10;    /* the request is an HTTP/1.0 request */
  bool is_paused;    /* the owner wants no bytes of the body */
  bool expects;      /* a server's client waits for status 100 */
  bool may_upgrade;  /* the request offers other protocols */
  bool is_dropped;   /* the answer has no body: bytes that the owner writes are dropped */
  bool is_chunked;   /* we send chunks */
  bool wants_room;   /* on_room is due */
  bool knows_gone;   /* on_gone was called */
  uint8_t n_interim; /* interim answers */

  /* The connection */
  bool keeps_alive;      /* another exchange may follow */
  bool has_skipped_line; /* the empty line before a request */
  bool has_eof;          /* the peer has closed its side, and all of its bytes were fed */
  bool is_gone;          /* of a server: the client has closed its side */
  bool is_cut;           /* see kw_http_note_cut */
  bool is_receiving;     /* kw_receive is running */
  bool is_turn_over;     /* no more requests before the next kw_http_step */
  bool is_draining;
  bool is_over;      /* no more exchanges; `out` is all that will be sent */
  bool is_lingering; /* reads and drops, after a refusal */
  char why[KW_HTTP_WHY];

  /* Times in milliseconds */
  int64_t now;
  int64_t idle_since;    /* start of the connection, or end of the last exchange or of its output */
  int64_t head_since;    /* first byte of the head; KW_HTTP_NEVER: none has arrived */
  int64_t last_received; /* last bytes, or resumption of the body; KW_HTTP_NEVER: see kw_receive */
  int64_t last_wrote;    /* last progress or start of the output; KW_HTTP_NEVER: see kw_receive */
  int64_t gone_since; /* since when the client of the exchange is gone; KW_HTTP_NEVER: it is not */
  int64_t end_deadline; /* of a drain, or of lingering */
};

static inline kw_http *kw_http_of(const kw_exchange *exchange) {
  return KW_CONTAINER_OF(exchange, kw_http, exchange);
}

/* True if no more should be added to the output. */
static inline bool kw_http_is_full(const kw_http *http) {
  return http->out.len >= http->options->max_out;
}

/* True if more of the body of a request is missing than is read after the answer. */
static inline bool kw_http_has_long_rest(const kw_http *http) {
  return http->in == KW_IN_BODY && http->body.kind == KW_BODY_LENGTH &&
         http->body.left > KW_HTTP_DROPPED;
}

/* {====== connection.c ====== */

/* Notes why the connection ends. Only the first reason is stored. */
void kw_http_note_why(kw_http *http, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the connection for lack of memory. Calls no hook. */
void kw_http_end_without_memory(kw_http *http);

/* Marks the connection as ended. The output is still written. Calls no hook. */
void kw_http_finish(kw_http *http);

/* Does what kw_http_finish does, and lets a peer that may still be sending read the output first: a socket that is
 * closed with unread input loses its unsent output. */
void kw_http_linger(kw_http *http);

/* Begins to wait for the next exchange. */
void kw_http_reset(kw_http *http);

/* Calls on_close for the exchange. */
void kw_http_close_exchange(kw_http *http, const char *why);

/* If the connection has ended: calls on_close for its exchange, and frees the input. */
void kw_http_settle(kw_http *http);

/* }====== */

/* {====== receive.c ====== */

/* Processes the queued input and then these bytes, as far as possible, and queues the rest. Times that are
 * KW_HTTP_NEVER become the present time. Then calls kw_http_settle. */
void kw_receive(kw_http *http, kw_slice bytes);

/* }====== */

/* {====== send.c ====== */

extern const kw_exchange_carrier kw_http_carrier;

/* Server: sends status 100. Ends the connection if memory is short. Calls no hook. */
void kw_send_continue(kw_http *http);

/* Ends the connection because of a fault of the peer. A server sends the status if no answer has begun, and lingers.
 * Calls no hook except `date`. */
void kw_send_refusal(kw_http *http, kw_refusal refusal);

/* }====== */

#endif
