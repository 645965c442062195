/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/peer.h"

#include "base/mem.h"
#include "model/error.h"
#include "rpc/method.h"
#include "rpc/notes.h"
#include "rpc/request.h"
#include "rpc/write_queue.h"

/* {====== Hooks of the session ====== */

static void on_open(kw_stream *stream, kw_slice path, void *ctx) {
  kw_peer *peer = ctx;
  const kw_method *method = kw_method_find(peer->server, path);
  if (peer->server->takes_notes) kw_notes_open(peer->server, stream, path);
  if (method != NULL) kw_method_count(peer->server, method, stream);
  if (!kw_account_ask(kw_session_account(stream->session), 0)) {
    peer->server->counters.over_memory++;
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return;
  }
  if (method == NULL) {
    peer->server->counters.unknown++;
    kw_method_refuse(peer->server, stream, path);
    return;
  }
  if (kw_call_begin_intercepted(peer->server, stream, method)) return;
  kw_method_begin(peer->server, stream, method);
}

static void on_refused(kw_stream *stream, kw_slice path, void *ctx) {
  kw_server *server = ((kw_peer *)ctx)->server;
  server->counters.malformed++;
  if (server->takes_notes) kw_notes_open(server, stream, path);
}

void kw_peer_deliver(kw_stream *stream, kw_slice bytes) {
  kw_peer *peer = kw_peer_of(stream);
  kw_server *server = peer->server;
  const kw_method *method = stream->method;
  peer->last_progress = server->now;
  method->counters->received++;
  method->counters->received_bytes += bytes.len;
  if (server->takes_notes) kw_notes_arrived(server, stream);
  if (method->request == NULL) {
    method->on_request(server, stream, &bytes);
    return;
  }
  server->asked_at = server->now;
  bool has_to_wait = method->waits && kw_write_queue_must_wait(server);
  if (has_to_wait && method->only_reads == NULL) {
    kw_write_queue_add(server, stream, bytes);
  } else {
    server->work = kw_work_of_turn();
    if (kw_method_deliver(server, stream, bytes, has_to_wait))
      kw_write_queue_add(server, stream, bytes);
  }
  kw_arena_reset(&server->arena); /* now, since the next request may arrive much later */
  if (server->takes_notes) kw_notes_answered(peer, stream);
}

static void on_message(kw_stream *stream, kw_slice bytes, void *ctx) {
  if (!kw_call_hold(((kw_peer *)ctx)->server, stream, bytes)) kw_peer_deliver(stream, bytes);
}

static void on_half_close(kw_stream *stream, void *ctx) {
  const kw_method *method = stream->method;
  if (method->on_half_close != NULL) method->on_half_close(((kw_peer *)ctx)->server, stream);
}

static void on_pull(kw_stream *stream, void *ctx) {
  const kw_method *method = stream->method;
  if (method->on_pull != NULL) method->on_pull(((kw_peer *)ctx)->server, stream);
}

static void on_room(kw_stream *stream, void *ctx) {
  const kw_method *method = stream->method;
  method->on_room(((kw_peer *)ctx)->server, stream);
}

static void on_timeout(kw_stream *stream, void *ctx) {
  static const char text[] = "context deadline exceeded";
  const kw_method *method = stream->method;
  kw_stream_finish(stream, KW_GRPC_DEADLINE_EXCEEDED, kw_slice_of(text, sizeof text - 1));
  if (method != NULL && method->on_timeout != NULL)
    method->on_timeout(((kw_peer *)ctx)->server, stream);
}

static bool is_turn_over(void *ctx) {
  return kw_driver_is_turn_over(&((const kw_peer *)ctx)->driver);
}

static void on_close(kw_stream *stream, void *ctx) {
  kw_server *server = ((kw_peer *)ctx)->server;
  const kw_method *method = stream->method;
  if (method != NULL && method->on_close != NULL) method->on_close(server, stream);
  kw_method_count_end(server, stream);
  kw_call_end_intercepted(server, stream);
  if (server->takes_notes) kw_notes_close(ctx, stream);
}

/* }====== */

/* {====== Either protocol ====== */

kw_account *kw_peer_account(const kw_peer *peer) {
  return peer->http != NULL ? kw_http_account(peer->http) : kw_session_account(peer->session);
}

static int64_t deadline_of(const kw_peer *peer) {
  return peer->http != NULL ? kw_http_deadline(peer->http) : kw_session_deadline(peer->session);
}

static kw_chain *out_of(kw_peer *peer) {
  if (peer->server == NULL) return &peer->left;
  return peer->http != NULL ? kw_http_out(peer->http) : kw_session_out(peer->session);
}

static void flush(kw_peer *peer) {
  if (peer->http != NULL) {
    kw_http_flush(peer->http, peer->server->now);
  } else {
    kw_session_flush(peer->session);
  }
}

/* }====== */

kw_peer *kw_peer_open(kw_server *server, const kw_peer_hooks *hooks, int64_t now) {
  if (server->is_draining) return NULL;
  kw_peer *peer = kw_alloc_zeroed(sizeof *peer);
  if (peer == NULL) return NULL;
  kw_session_hooks session_hooks = {.on_open = on_open,
                                    .on_refused = on_refused,
                                    .on_message = on_message,
                                    .on_half_close = on_half_close,
                                    .on_pull = on_pull,
                                    .on_room = on_room,
                                    .on_timeout = on_timeout,
                                    .on_close = on_close,
                                    .is_turn_over = is_turn_over,
                                    .exchange = &kw_request_hooks,
                                    .ctx = peer};
  peer->session = kw_session_new(&server->options.session, &session_hooks, now);
  if (peer->session == NULL) {
    kw_free(peer);
    return NULL;
  }
  peer->server = server;
  kw_driver_init(&peer->driver, hooks);
  peer->last_progress = now;
  kw_news_init(&peer->news);
  kw_link_add(&server->peers, &peer->link);
  server->n_peers++;
  server->counters.accepted++;
  if (server->takes_notes) kw_notes_accepted(server, peer->driver.hooks.remote);
  kw_driver_set_deadline(&peer->driver, deadline_of(peer));
  return peer;
}

/* Copies the reason why the connection ends: that of the session; or if it has none, that of the driver. */
static void explain_end(const kw_peer *peer, const char *why, char text[KW_NOTE_TEXT]) {
  const char *reason = kw_peer_why(peer);
  if (reason[0] == 0) reason = why;
  if (reason == NULL)
    reason = peer->server->is_draining ? "the server is shutting down"
                                       : "the client closed the connection";
  snprintf(text, KW_NOTE_TEXT, "%s", reason);
}

/* Notes why the connection ends. */
static void note_end(kw_server *server, const kw_peer *peer, const char *text, bool is_rejected) {
  const char *remote = peer->driver.hooks.remote;
  if (is_rejected) {
    kw_notes_rejected(server, remote, text);
  } else if (server->takes_notes) {
    kw_notes_ended(server, remote, text);
  }
}

/* Ends the session of a peer. The notes of its streams precede the note of its end. */
static void detach_as(kw_peer *peer, const char *text, bool is_rejected) {
  kw_server *server = peer->server;
  kw_chain *out = out_of(peer);
  flush(peer);
  kw_chain_discharge(out);
  peer->left = *out;
  *out = (kw_chain){0};
  if (peer->http != NULL) kw_http_free(peer->http);
  if (peer->session != NULL) kw_session_free(peer->session);
  server->counters.rejected += is_rejected;
  note_end(server, peer, text, is_rejected);
  kw_link_remove(&peer->link);
  server->n_peers--;
  peer->server = NULL;
  peer->session = NULL;
  peer->http = NULL;
  kw_driver_touch(&peer->driver);
}

static void detach(kw_peer *peer, const char *why) {
  char text[KW_NOTE_TEXT];
  if (peer->server == NULL) return;
  explain_end(peer, why, text);
  detach_as(peer, text, peer->session != NULL && kw_session_is_foreign(peer->session));
}

void kw_peer_detach(kw_peer *peer) {
  detach(peer, "the server is closed");
}

void kw_peer_refuse(kw_peer *peer, const char *why) {
  if (peer->server != NULL) detach_as(peer, why, true);
}

void kw_peer_identify(kw_peer *peer, const char *identity, size_t len) {
  peer->is_tls = true;
  if (identity == NULL || peer->identity != NULL) return;
  peer->identity = kw_blob_copy(kw_slice_of(identity, len));
}

void kw_peer_cut(kw_peer *peer) {
  peer->server->counters.cut++;
  detach(peer, "the connections of the server hold too much memory, and this one holds the most");
  kw_chain_drop(&peer->left);
}

size_t kw_peer_held(const kw_peer *peer) {
  return kw_peer_account(peer)->held;
}

bool kw_peer_is_busy(const kw_peer *peer) {
  return peer->server != NULL && kw_server_is_busy(peer->server);
}

const char *kw_peer_why(const kw_peer *peer) {
  if (peer->server == NULL) return "";
  return peer->http != NULL ? kw_http_why(peer->http) : kw_session_why(peer->session);
}

kw_peer *kw_peer_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_peer, link);
}

static void drain_session(kw_peer *peer, int64_t ms, int64_t now) {
  kw_stream *stream = NULL;
  while ((stream = kw_session_next(peer->session, stream)) != NULL) {
    const kw_method *method = stream->method;
    if (method != NULL && method->on_drain != NULL) method->on_drain(peer->server, stream);
  }
  kw_session_drain(peer->session, ms, now);
}

void kw_peer_drain(kw_peer *peer, int64_t ms, int64_t now) {
  if (peer->http != NULL) {
    kw_http_drain(peer->http, ms, now);
  } else {
    drain_session(peer, ms, now);
  }
  kw_driver_update(&peer->driver, deadline_of(peer));
}

/* {====== The first bytes ====== */

/* Replaces the session, which has no streams, by an HTTP/1.1 connection. */
static void begin_http(kw_peer *peer, int64_t now) {
  peer->http = kw_http_new(&peer->server->options.http, &kw_request_hooks, peer, now);
  if (peer->http == NULL) {
    detach(peer, "out of memory");
    return;
  }
  kw_session_free(peer->session);
  peer->session = NULL;
}

static void deliver(kw_peer *peer, kw_slice bytes, int64_t now) {
  if (peer->http != NULL) {
    kw_http_feed(peer->http, bytes, now);
  } else if (peer->session != NULL) {
    kw_session_feed(peer->session, bytes, now);
  }
}

/* Delivers bytes once the first ones tell which protocol the client speaks. The session refuses every other protocol
 * than these two. */
static void deliver_first(kw_peer *peer, kw_slice bytes, int64_t now) {
  size_t n = kw_min_size(bytes.len, sizeof peer->first - peer->n_first);
  if (n > 0) memcpy(peer->first + peer->n_first, bytes.data, n);
  peer->n_first += (uint8_t)n;
  kw_slice first = kw_slice_of(peer->first, peer->n_first);
  kw_first protocol = bytes.len == 0 ? KW_FIRST_FOREIGN : kw_first_bytes(first);
  if (protocol == KW_FIRST_UNKNOWN) return;
  peer->has_protocol = true;
  if (protocol == KW_FIRST_HTTP1) begin_http(peer, now);
  if (first.len > 0) deliver(peer, first, now);
  if (n > 0) bytes = kw_slice_of(bytes.data + n, bytes.len - n);
  if (n == 0 || bytes.len > 0) deliver(peer, bytes, now);
}

/* }====== */

/* {====== For the driver ====== */

/* Frees a peer, and the bytes that it has not written. `why` is for the debug log. */
static void close_peer(void *ctx, const char *why) {
  kw_peer *peer = ctx;
  peer->driver.hooks.on_dirty = NULL;
  detach(peer, why);
  kw_chain_drop(&peer->left);
  if (peer->identity != NULL) kw_blob_release(peer->identity);
  kw_free(peer);
}

static void feed(void *ctx, const void *bytes, size_t len, int64_t now) {
  kw_peer *peer = ctx;
  if (peer->server == NULL) return;
  peer->server->now = now;
  (peer->has_protocol ? deliver : deliver_first)(peer, kw_slice_of(bytes, len), now);
  if (peer->server != NULL) kw_driver_update(&peer->driver, deadline_of(peer));
}

static size_t pending(void *ctx, struct iovec *pieces, size_t max) {
  kw_peer *peer = ctx;
  if (peer->session != NULL) kw_session_set_time(peer->session, peer->server->now);
  if (peer->server != NULL) {
    flush(peer);
    kw_driver_set_deadline(&peer->driver, deadline_of(peer));
  }
  return kw_chain_peek(out_of(peer), pieces, max);
}

static void wrote(void *ctx, size_t bytes) {
  kw_peer *peer = ctx;
  kw_chain_skip(out_of(peer), bytes);
  if (peer->server == NULL) return;
  if (bytes > 0) peer->last_progress = peer->server->now;
  if (peer->http != NULL) {
    kw_http_wrote(peer->http, peer->server->now);
  } else {
    kw_session_wrote(peer->session);
  }
  kw_driver_set_deadline(&peer->driver, deadline_of(peer));
}

static unsigned state(const void *ctx) {
  const kw_peer *peer = ctx;
  if (peer->server == NULL) return KW_PEER_IS_DONE;
  if (peer->http != NULL)
    return kw_driver_state(kw_http_is_done(peer->http), kw_http_wants_bytes(peer->http));
  return kw_driver_state(kw_session_is_done(peer->session), kw_session_wants_bytes(peer->session));
}

static void step(void *ctx, int64_t now) {
  kw_peer *peer = ctx;
  if (peer->server == NULL) return;
  peer->server->now = now;
  kw_driver_stepped(&peer->driver);
  if (peer->http != NULL) {
    kw_http_step(peer->http, now);
  } else {
    kw_session_step(peer->session, now);
  }
  kw_driver_update(&peer->driver, deadline_of(peer));
}

/* The lengths of all requests are known. */
static void cut(void *ctx, int64_t now) {
  feed(ctx, NULL, 0, now);
}

void kw_peer_note_gone(kw_peer *peer, int64_t now) {
  if (peer->server == NULL || peer->http == NULL) return;
  peer->server->now = now;
  kw_http_note_gone(peer->http, now);
  kw_driver_set_deadline(&peer->driver, deadline_of(peer));
}

const kw_peer_face kw_accepted_face = {feed, pending, wrote, state, step, close_peer, cut};

/* }====== */
