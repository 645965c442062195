/* SPDX-License-Identifier: MIT
 *
 * session: one HTTP/2 connection with gRPC on it, without I/O and without a clock, for servers and for clients.
 *
 * Bytes in: kw_session_feed. Bytes out: kw_session_flush puts what may be sent now into `out`. Time: `now` in
 * milliseconds, kw_session_deadline and kw_session_step.
 *
 * What is bounded, and by what:
 *   header lists       max_header_bytes; 431 for the request, status 8 for the call of a client
 *   messages           max_message; status 8 for the call
 *   torn messages      max_partial for all streams together; status 8 for the call
 *   streams            max_streams; refused
 *   resets             by rate: the connection is ended with INTERNAL_ERROR, by nghttp2
 *   pings              by rate: the connection is ended with ENHANCE_YOUR_CALM
 *   settings           by rate and streams, the same; those that wait to be acknowledged: the connection is ended
 *   continuations      of one header block: the connection is ended
 *   framed output      max_framed
 *   answers            those that streams' windows let out and the socket does not take, max_queued: beyond it unary
 *                      requests wait in turn. Those of a stream that takes many messages, max_stream_queued: beyond it
 *                      that stream is heard no further. All that wait, max_waiting: see kw_stream_has_room.
 *   input that waits   a stream's window; max_input for all streams together: status 8 for the stream that holds most
 *   all of it          the budget of all sessions: status 8 for calls of a session that holds more than its share
 *
 * Everything that a session holds is in its account: chains, torn messages, streams, and what nghttp2 takes.
 *
 * No stream delays another one. The connection's flow control window opens again for all that comes, a stream's only
 * for what was heard. Answers that wait for their own stream's window keep no request from being heard.
 */
#ifndef KW_H2_SESSION_H
#define KW_H2_SESSION_H

#include "h2/stream.h"

typedef struct kw_session_options {
  bool is_client;
  uint32_t max_streams;
  size_t max_message;
  size_t max_header_bytes;
  size_t max_partial;
  size_t max_framed;
  size_t max_queued;
  size_t max_stream_queued;
  size_t max_waiting;
  size_t max_input;
  int64_t handshake_ms; /* for the first settings to come */
  int64_t
      keepalive_ms; /* without bytes, until we ask; 0: never. A client asks only while it has streams */
  int64_t keepalive_wait_ms; /* for the answer */
  int64_t ping_min_ms;       /* between pings of a client that is in use; 0: any */
  int64_t ping_idle_min_ms;  /* of one without streams */
  kw_budget *budget;         /* of all sessions together; or NULL */
} kw_session_options;

/* A header of the request or answer that is being heard; good only inside of the hook. */
typedef struct kw_header_field {
  kw_slice name;
  kw_slice value;
} kw_header_field;

#define KW_MAX_METADATA 32 /* lines that a client may add to a request */

typedef struct kw_session_hooks {
  /* A server's: a call has come, with the path and the other headers in kw_session_fields. The owner sets is_unary and
   * owner, or finishes it. */
  void (*on_open)(kw_stream *stream, kw_slice path, void *ctx);
  /* A message. */
  void (*on_message)(kw_stream *stream, kw_slice message, void *ctx);
  /* A server's: no more messages will come. Not told of a unary call. */
  void (*on_half_close)(kw_stream *stream, void *ctx);
  /* The stream can take more: its owner may add to it. */
  void (*on_pull)(kw_stream *stream, void *ctx);
  /* A server's: there is room again for the answer of a stream that was deferred. */
  void (*on_room)(kw_stream *stream, void *ctx);
  /* A client's: the status has come, in stream->status and stream->text. */
  void (*on_end)(kw_stream *stream, void *ctx);
  /* A server's: the time that the client gave it is over, and it has no status yet. */
  void (*on_timeout)(kw_stream *stream, void *ctx);
  /* The stream goes. */
  void (*on_close)(kw_stream *stream, void *ctx);
  /* A server's: whether no more messages may be told before the next step, which is then due; or NULL. */
  bool (*is_turn_over)(void *ctx);
  void *ctx;
} kw_session_hooks;

kw_session_options kw_session_defaults(void);

/* Sets max_queued, and in proportion to it the other bounds of what waits. */
void kw_session_set_queue(kw_session_options *options, size_t max_queued);

/* NULL if memory is short. */
kw_session *kw_session_new(const kw_session_options *options, const kw_session_hooks *hooks,
                           int64_t now);

/* Every stream is told of its end. */
void kw_session_free(kw_session *session);

/* Takes bytes that came; none: no more will come. */
void kw_session_feed(kw_session *session, kw_slice bytes, int64_t now);

/* Puts what may be sent into the chain of output, up to its bound. */
void kw_session_flush(kw_session *session);
kw_chain *kw_session_out(kw_session *session);

/* Ends it at once: nothing more is heard, and nothing said but what has been framed. */
void kw_session_end(kw_session *session);

/* Says that it goes, and ends. */
void kw_session_leave(kw_session *session);

/* After some of the output was written: what was held back goes on. */
void kw_session_wrote(kw_session *session);

/* The time of what is sent from now on, for those who send without anything coming. */
void kw_session_set_time(kw_session *session, int64_t now);

bool kw_session_wants_bytes(const kw_session *session);

/* A client's: the server has answered, and takes calls; and whether it complains of too many pings. */
bool kw_session_is_ready(const kw_session *session);
bool kw_session_got_enhance_your_calm(const kw_session *session);

/* The other side takes no more streams. */
bool kw_session_got_goaway(const kw_session *session);

/* Why it has ended, or is about to, in words; empty where there is nothing to say. */
const char *kw_session_why(const kw_session *session);

/* Over, once the output has been written. */
bool kw_session_is_done(const kw_session *session);

/* When kw_session_step is next wanted; INT64_MAX: not by itself. */
int64_t kw_session_deadline(const kw_session *session);
void kw_session_step(kw_session *session, int64_t now);

/* Ends it in order: no new streams are taken, those that there are may end, at most for `ms`. */
void kw_session_drain(kw_session *session, int64_t ms, int64_t now);

/* The stream after another one, or the first after NULL; and the ctx of the hooks. */
kw_stream *kw_session_next(const kw_session *session, const kw_stream *stream);
void *kw_session_ctx(const kw_session *session);

kw_account *kw_session_account(kw_session *session);

/* The headers of what is being heard. */
const kw_header_field *kw_session_fields(const kw_session *session, size_t *n);

/* A client's: a new call. NULL if memory is short, or the server takes no more. */
kw_stream *kw_session_request(kw_session *session, kw_slice authority, kw_slice path,
                              const kw_header_field *fields, size_t n, void *owner);

/* Asks the other side for a sign of life. */
void kw_session_ping(kw_session *session);

#ifdef KW_PROBE
/* What is not as it must be between two calls into the session, see fault.c; or NULL. */
const char *kw_session_fault(const kw_session *session);

/* What the session itself has charged to its account: the rest was charged by those who use it. */
size_t kw_session_charge(const kw_session *session);
#endif

#endif
