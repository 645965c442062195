/* SPDX-License-Identifier: MIT
 *
 * session: one HTTP/2 connection, which carries gRPC calls and HTTP exchanges, for servers and for clients. Its
 * streams are calls, see stream.h; or carry exchanges, see http/exchange.h.
 *
 * A session does no I/O and reads no clock. The owner passes received bytes to kw_session_feed. kw_session_flush
 * appends the frames that may be sent now to the chain kw_session_out. Times are milliseconds: the owner passes `now`,
 * and calls kw_session_step at the time that kw_session_deadline returns.
 *
 * Every resource that a peer can consume has a limit:
 *   header block           max_header_bytes: HTTP status 431 for a request, gRPC status 8 for a client's call
 *   message                max_message: gRPC status 8 for the call
 *   partial messages       max_partial bytes on all streams together: status 8 for the call
 *   streams                max_streams: REFUSED_STREAM
 *   RST_STREAM frames      by rate: nghttp2 ends the connection with INTERNAL_ERROR
 *   PING frames            by rate: the connection ends with ENHANCE_YOUR_CALM
 *   SETTINGS frames        by the rate of one session, and that of all sessions together; a frame counts once for
 *                          itself and once for each stream: the connection ends with ENHANCE_YOUR_CALM. If too many
 *                          acknowledgements of ours wait, nghttp2 ends the connection
 *   colliding streams      streams whose numbers collide in nghttp2's hash table (h2/flood.c), by their share of all
 *                          streams: the connection ends with ENHANCE_YOUR_CALM
 *   CONTINUATION frames    for each header block: nghttp2 ends the connection
 *   frames for the socket  max_framed bytes
 *   answers                max_queued bytes that the streams' windows allow, but the socket does not take: unary
 *                          requests wait. max_stream_queued bytes on one streaming call: the call waits.
 *                          max_waiting bytes altogether: see kw_stream_has_room
 *   input that waits       the window of its stream; max_input bytes on all streams together: status 8 for the stream
 *                          with the most
 *   memory                 the budget that all sessions share: status 8 for calls of a session above its share; if
 *                          nghttp2 then needs memory, the connection ends
 *
 * The account of a session counts all its memory: chains, partial messages, streams, and nghttp2's allocations.
 *
 * No stream delays another one. DATA is returned to the flow-control window of the connection at once, to that of its
 * stream only when it was delivered. Answers that wait for the window of their own stream do not prevent other requests
 * from being read.
 */
#ifndef KW_H2_SESSION_H
#define KW_H2_SESSION_H

#include "h2/stream.h"

/* How much of a rate is used up, see flood.c. All zero: nothing. */
typedef struct kw_meter {
  int64_t used; /* units, at the time `at` */
  int64_t at;   /* milliseconds */
} kw_meter;

typedef struct kw_session_options {
  bool is_client;
  bool is_tls; /* of a client: the driver carries the connection over TLS, and requests say https */

  /* Bounds, see above: max_streams is a number of streams, the others are bytes. */
  uint32_t max_streams;
  size_t max_message;
  size_t max_header_bytes;
  size_t max_partial;
  size_t max_framed;
  size_t max_queued;
  size_t max_stream_queued;
  size_t max_waiting;
  size_t max_input;

  int64_t handshake_ms; /* timeout for the peer's first SETTINGS frame */
  int64_t
      keepalive_ms; /* silence before we send PING; 0: never. A client pings only while it has streams */
  int64_t keepalive_wait_ms; /* timeout for the answer to our PING */
  int64_t ping_min_ms;       /* least time between PINGs of a client with streams; 0: any */
  int64_t ping_idle_min_ms;  /* the same for a client without streams */
  uint64_t max_body;         /* of an exchange, unless its owner sets another limit */
  int64_t body_ms;           /* between bytes of the body of an exchange; 0: unlimited */
  kw_budget *budget;         /* of all sessions together; or NULL */
  kw_meter *settings;        /* SETTINGS frames of all sessions together; or NULL */
  kw_chain
      *discarded; /* gets large messages that will not be sent: the owner frees them; or NULL */
} kw_session_options;

#define KW_MAX_METADATA 32 /* fields that a client may add to a request */

/* Functions of the owner, called from the functions below and from kw_stream_resume. A hook may call every function of
 * a stream, but must not feed, flush, step or free the session. Slices are valid only inside the hook. A hook that is
 * marked for the other role may be NULL. */
typedef struct kw_session_hooks {
  /* Server: a call has arrived. kw_session_fields has its metadata. The owner sets is_unary or takes_one (neither: any
   * number of messages) and its own fields of the stream; or it finishes the stream. */
  void (*on_open)(kw_stream *stream, kw_slice path, void *ctx);
  /* Server: a request has arrived whose head is not valid, and the session has finished the stream. The path may be
   * empty. on_open is not called. May be NULL. */
  void (*on_refused)(kw_stream *stream, kw_slice path, void *ctx);
  /* A message has arrived. Called for a unary call of a server only after the half-close. */
  void (*on_message)(kw_stream *stream, kw_slice message, void *ctx);
  /* Server: the client has half-closed the stream; no message follows. Not called for unary calls. */
  void (*on_half_close)(kw_stream *stream, void *ctx);
  /* The stream could send more data than it has: the owner may add some now. */
  void (*on_pull)(kw_stream *stream, void *ctx);
  /* Server: a call that kw_stream_defer has deferred has space for its answer. */
  void (*on_room)(kw_stream *stream, void *ctx);
  /* Client: the call has ended, with stream->status and stream->text. on_close follows at once. */
  void (*on_end)(kw_stream *stream, void *ctx);
  /* Server: the deadline that the client set has passed, and the call has no status yet. The owner finishes the
   * stream. */
  void (*on_timeout)(kw_stream *stream, void *ctx);
  /* The stream is about to be freed. Always the last call for a stream, even if on_open was not called; not called for
   * the exchanges of a client. stream->status
   * and stream->text say how a server has ended the call. */
  void (*on_close)(kw_stream *stream, void *ctx);
  /* Server: true if the connection has used up its turn. Messages then wait for the next kw_session_step, which is due
   * at once. NULL: turns are unlimited. */
  bool (*is_turn_over)(void *ctx);
  /* The hooks of exchanges: of a server, of all requests that are not gRPC calls. Not copied. Their is_turn_over is
   * not called. NULL: a client without exchanges. */
  const kw_exchange_hooks *exchange;
  void *ctx;
} kw_session_hooks;

/* Returns the default options of a server. */
kw_session_options kw_session_defaults(void);

/* Sets max_queued in bytes, and in proportion to it max_stream_queued, max_waiting and max_input. */
void kw_session_set_queue(kw_session_options *options, size_t max_queued);

/* Makes a session; options and hooks are copied. NULL if memory is short. */
kw_session *kw_session_new(const kw_session_options *options, const kw_session_hooks *hooks,
                           int64_t now);

/* Ends every stream, a client's with status 14 (Unavailable) unless it has a status, and frees the session. */
void kw_session_free(kw_session *session);

/* {====== Bytes and time ====== */

/* Takes bytes from the peer, and copies those that it keeps. No bytes: the peer has closed its side, and the session
 * ends. Does nothing if the session has ended. */
void kw_session_feed(kw_session *session, kw_slice bytes, int64_t now);

/* Adds the frames that may be sent now to the output, until it has about max_framed bytes. Calls on_pull. A server adds
 * none before it has received the client's preface. */
void kw_session_flush(kw_session *session);

/* Returns the output. The owner removes what the socket has taken and then calls kw_session_wrote. */
kw_chain *kw_session_out(kw_session *session);

/* Notes that some of the output was written, and resumes the streams that waited for that. */
void kw_session_wrote(kw_session *session);

/* Sets the time without doing anything. For owners that add answers while nothing is received. */
void kw_session_set_time(kw_session *session, int64_t now);

/* True if the session wants to be fed. False if it has ended, or its turn is over; and at a server, as backpressure,
 * while too much output waits because the client does not read. */
bool kw_session_wants_bytes(const kw_session *session);

/* Returns when kw_session_step is due; INT64_MAX: never. */
int64_t kw_session_deadline(const kw_session *session);

/* Does what is due: keepalive, call deadlines, the end of a drain, the next turn of waiting streams. */
void kw_session_step(kw_session *session, int64_t now);

/* }====== */

/* {====== The end ====== */

/* Server: drains the session: sends GOAWAY, and ends with the last stream, after `ms` milliseconds at the latest. Takes
 * no new streams, except those that the client begins before it receives the GOAWAY. A session without the client's
 * preface ends at once. A second call only sets the time. */
void kw_session_drain(kw_session *session, int64_t ms, int64_t now);

/* Puts a GOAWAY into the output and ends the session at once. The output still has to be written. */
void kw_session_leave(kw_session *session);

/* Ends the session at once. Nothing more is read. Only frames that are in the output already may still be sent. */
void kw_session_end(kw_session *session);

/* True if the session has ended. The output may still have to be written. */
bool kw_session_is_done(const kw_session *session);

/* Returns why the session has ended or is about to, in words; "" if no reason is known. Valid as long as the
 * session. */
const char *kw_session_why(const kw_session *session);

/* Server: true if the session has ended because the client does not speak HTTP/2, or has not sent its first SETTINGS
 * frame in time. */
bool kw_session_is_foreign(const kw_session *session);

/* True if the peer has sent GOAWAY: it takes no more streams. */
bool kw_session_got_goaway(const kw_session *session);

/* Client: true if the server has sent GOAWAY with ENHANCE_YOUR_CALM, usually because our keepalive PINGs are too
 * frequent. */
bool kw_session_got_enhance_your_calm(const kw_session *session);

/* Returns how many bytes of DATA frames were received. */
uint64_t kw_session_data_bytes(const kw_session *session);

/* }====== */

/* Client: true if the server has sent its SETTINGS and takes calls. */
bool kw_session_is_ready(const kw_session *session);

/* Client: begins a call with these fields as metadata, at most KW_MAX_METADATA; more are left out. The bytes are
 * copied. `owner` becomes stream->owner. The stream belongs to the session, and is valid until on_close. Returns NULL
 * if memory is short, the session has ended, or the server takes no more calls; on_close may then have been called for
 * the stream. */
kw_stream *kw_session_request(kw_session *session, kw_slice authority, kw_slice path,
                              const kw_http_field *fields, size_t n, void *owner);

/* Client: begins an HTTP exchange, whose owner is `owner`. request->length is that of the body: 0 if there is none,
 * -1 if it is not known yet. The scheme is that of the connection. The head is copied. Returns NULL, with nothing sent,
 * if a part of the head is not valid, if the session has ended, if the server takes no more requests, or if memory is
 * short. */
kw_exchange *kw_session_exchange(kw_session *session, const kw_http_request *request, void *owner);

/* Client: returns the maximum number of concurrent exchanges, as far as the server has announced it. */
size_t kw_session_most(const kw_session *session);

/* Client: true if another exchange may begin: the server has sent its SETTINGS, and allows another stream. */
bool kw_session_takes_more(const kw_session *session);

/* Client: fails the exchanges that cannot end: all if the session has ended; after a GOAWAY those that were not sent.
 * Must be called after the session was fed, stepped or ended. */
void kw_session_end_exchanges(kw_session *session);

/* Sends PING, which a live peer answers. */
void kw_session_ping(kw_session *session);

/* Returns the stream after `stream`, in the order in which they were made; the first one if `stream` is NULL. Returns
 * NULL at the end. */
kw_stream *kw_session_next(const kw_session *session, const kw_stream *stream);

/* Returns the fields of the header block that is being received, and their number. For on_open and on_refused. */
const kw_http_field *kw_session_fields(const kw_session *session, size_t *n);

/* Returns the ctx of the hooks. */
void *kw_session_ctx(const kw_session *session);

/* Returns the account that is charged for the memory of the session. The owner may charge it too. */
kw_account *kw_session_account(kw_session *session);

#endif
