/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/client.h"

#include "base/map.h"
#include "base/mem.h"
#include "rpc/driver.h"
#include "rpc/outcall.h"

#define KW_CLIENT_PING_MS                                                                          \
  10000 /* silence on an HTTP/2 connection with exchanges, before we send PING */

struct kw_client {
  kw_session *session; /* of gRPC or of HTTP/2; NULL: there is none, or not yet */
  bool is_http;        /* the client has fetches, and no calls */
  kw_fetches fetches;  /* of HTTP */
  kw_http_kind kind;   /* of HTTP */
  int64_t connect_by;  /* of HTTP: when connecting has taken too long */
  kw_blob *authority;
  kw_map calls; /* kw_outcall by number */
  uint64_t last_call;
  kw_link ready_calls;
  kw_link ready_watches; /* kw_subscription */
  size_t max_untaken;
  uint64_t hash_seed;

  int64_t now;      /* the time of the last call by the driver */
  kw_driver driver; /* without hooks before it has dialed, and after it has closed */
  bool is_closed;
  bool has_ended;          /* of HTTP: before it was connected */
  bool was_ready;          /* kw_session_is_ready, as Lua has last read it */
  bool was_closed;         /* is_closed, as Lua has last read it */
  uint64_t n_fed;          /* received bytes of HTTP */
  char why[KW_CLIENT_WHY]; /* the driver's reason for closing; or "" */
};

/* {====== gRPC or HTTP ====== */

static kw_http *http_of(const kw_client *client) {
  return client->fetches.http;
}

int64_t kw_client_deadline(const kw_client *client) {
  if (client->session != NULL) return kw_session_deadline(client->session);
  if (http_of(client) != NULL) return kw_http_deadline(http_of(client));
  return client->has_ended ? INT64_MAX : client->connect_by;
}

static bool is_ready(const kw_client *client) {
  if (client->session != NULL) return kw_session_is_ready(client->session);
  return http_of(client) != NULL && !kw_http_is_done(http_of(client));
}

static bool is_done(const kw_client *client) {
  if (client->session != NULL) return kw_session_is_done(client->session);
  return http_of(client) != NULL ? kw_http_is_done(http_of(client)) : client->has_ended;
}

static bool wants_bytes(const kw_client *client) {
  if (client->session != NULL) return kw_session_wants_bytes(client->session);
  return http_of(client) != NULL && kw_http_wants_bytes(http_of(client));
}

static const char *cause_of(const kw_client *client) {
  if (client->session != NULL) return kw_session_why(client->session);
  return http_of(client) != NULL ? kw_http_why(http_of(client)) : "";
}

/* Ends the connection at once. */
static void end(kw_client *client, const char *why) {
  if (client->session != NULL) {
    kw_session_end(client->session);
  } else if (http_of(client) != NULL) {
    kw_http_end(http_of(client), why);
  }
  client->has_ended = true;
}

static void step_either(kw_client *client, int64_t now) {
  if (client->session != NULL) {
    kw_session_step(client->session, now);
  } else if (http_of(client) != NULL) {
    kw_http_step(http_of(client), now);
  } else if (now >= client->connect_by && !client->has_ended) {
    client->has_ended = true;
    snprintf(client->why, sizeof client->why, "connecting took too long");
  }
}

/* }====== */

/* Notifies the driver that there may be bytes to write, or another deadline. */
static void update(kw_client *client) {
  if (kw_driver_is_set(&client->driver))
    kw_driver_update(&client->driver, kw_client_deadline(client));
}

kw_fetches *kw_client_fetches(kw_client *client) {
  return client->is_http ? &client->fetches : NULL;
}

void kw_client_touch(kw_client *client) {
  if (http_of(client) != NULL) kw_http_flush(http_of(client), client->now);
  if (client->is_http && client->session != NULL) kw_session_end_exchanges(client->session);
  update(client);
}

/* {====== Hooks of the session ====== */

static void on_message(kw_stream *stream, kw_slice message, void *ctx) {
  kw_outcall *call = stream->owner;
  (void)ctx;
  if (call != NULL) kw_outcall_receive(call, message); /* NULL: the call was cancelled */
}

static void on_end(kw_stream *stream, void *ctx) {
  kw_outcall *call = stream->owner;
  (void)ctx;
  if (call != NULL) kw_outcall_end(call, stream->status, stream->text, stream->is_refused);
}

static void on_nothing(kw_stream *stream, void *ctx) {
  (void)stream, (void)ctx;
}

static void on_pull(kw_stream *stream, void *ctx) {
  kw_outcall *call = stream->owner;
  (void)ctx;
  if (call != NULL) kw_outcall_sent(call);
}

/* }====== */

/* {====== Calls ====== */

uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_http_field *metadata, size_t n,
                        bool is_unary, const kw_call_hooks *hooks) {
  if (!kw_map_reserve(&client->calls)) return 0;
  kw_outcall *call = kw_outcall_new(client->last_call + 1, is_unary, hooks, client->max_untaken,
                                    &client->ready_calls);
  if (call == NULL) return 0;
  call->stream = kw_session_request(client->session, kw_blob_slice(client->authority), path,
                                    metadata, n, call);
  if (call->stream == NULL) {
    call->hooks = (kw_call_hooks){0}; /* the call has not begun, so it does not end */
    kw_outcall_free(call);
    return 0;
  }
  kw_map_put(&client->calls, call->number, call);
  update(client);
  return client->last_call = call->number;
}

/* Frees a call, and forgets its number. */
static void drop_call(kw_client *client, kw_outcall *call) {
  uint64_t number = call->number;
  kw_outcall_free(call);
  kw_map_remove(&client->calls, number);
  kw_map_shrink(&client->calls, 0);
}

kw_return kw_client_take(kw_client *client, uint64_t number) {
  kw_outcall *call = kw_map_get(&client->calls, number);
  if (call == NULL) return (kw_return){.kind = KW_RETURN_NOTHING};
  bool was_paused = call->is_paused;
  kw_return taken = kw_outcall_take(call);
  if (was_paused) update(client); /* its window may have opened, even if it is paused again */
  if (taken.kind == KW_RETURN_END) drop_call(client, call);
  return taken;
}

uint64_t kw_client_next_ready(kw_client *client) {
  if (kw_link_is_alone(&client->ready_calls)) return 0;
  kw_outcall *call = KW_CONTAINER_OF(client->ready_calls.next, kw_outcall, ready);
  kw_link_remove(&call->ready);
  return call->number;
}

kw_link *kw_client_ready_watches(kw_client *client) {
  return &client->ready_watches;
}

static kw_outcall *find_live(const kw_client *client, uint64_t number) {
  kw_outcall *call = kw_map_get(&client->calls, number);
  return call == NULL || call->stream == NULL ? NULL : call;
}

bool kw_client_is_live(const kw_client *client, uint64_t number) {
  return find_live(client, number) != NULL;
}

bool kw_client_send(kw_client *client, uint64_t number, kw_slice message) {
  kw_outcall *call = find_live(client, number);
  if (call == NULL) return true;
  uint8_t *to = kw_stream_begin(call->stream, message.len);
  if (to == NULL) return false;
  if (message.len > 0) memcpy(to, message.data, message.len);
  kw_stream_commit(call->stream, message.len);
  update(client);
  return true;
}

void kw_client_half_close(kw_client *client, uint64_t number) {
  kw_outcall *call = find_live(client, number);
  if (call == NULL) return;
  kw_stream_half_close(call->stream);
  update(client);
}

bool kw_client_has_room(kw_client *client, uint64_t number, size_t max) {
  kw_outcall *call = find_live(client, number);
  if (call == NULL || call->stream->out.len <= max) return true;
  call->wants_room = true;
  return false;
}

void kw_client_cancel(kw_client *client, uint64_t number) {
  kw_outcall *call = kw_map_get(&client->calls, number);
  if (call == NULL) return;
  if (call->stream != NULL) {
    call->stream->owner = NULL;
    kw_stream_reset(call->stream, KW_RESET_CANCEL);
  }
  drop_call(client, call);
  update(client);
}

void kw_client_fail(kw_client *client, uint64_t number, int status, const char *text) {
  kw_outcall *call = find_live(client, number);
  if (call == NULL) return;
  kw_outcall_fail(call, status, text);
  update(client);
}

const kw_call_hooks *kw_client_hooks(const kw_client *client, uint64_t number) {
  const kw_outcall *call = find_live(client, number);
  return call == NULL ? NULL : &call->hooks;
}

void kw_client_pause(kw_client *client, uint64_t number) {
  kw_outcall *call = find_live(client, number);
  if (call != NULL) kw_stream_pause(call->stream);
}

void kw_client_resume(kw_client *client, uint64_t number) {
  kw_outcall *call = find_live(client, number);
  if (call == NULL) return;
  kw_stream_resume(call->stream);
  update(client);
}

/* }====== */

/* {====== Life ====== */

static kw_client *new_client(int64_t now) {
  kw_client *client = kw_alloc_zeroed(sizeof *client);
  if (client == NULL) return NULL;
  client->now = now;
  kw_driver_init(&client->driver, NULL);
  kw_link_init(&client->ready_calls);
  kw_link_init(&client->ready_watches);
  return client;
}

kw_client *kw_client_new_http(const kw_http_options *options, int64_t connect_ms, kw_http_kind kind,
                              int64_t now) {
  kw_client *client = new_client(now);
  if (client == NULL) return NULL;
  kw_http_options own = *options;
  own.is_client = true;
  kw_fetches_init(&client->fetches, &own);
  client->is_http = true;
  client->kind = kind;
  client->connect_by = connect_ms == 0 ? INT64_MAX : now + connect_ms;
  return client;
}

kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         uint64_t hash_seed, int64_t now) {
  kw_client *client = new_client(now);
  if (client == NULL) return NULL;
  kw_session_options own = *options;
  own.is_client = true;
  client->max_untaken = max_untaken;
  client->hash_seed = hash_seed;
  kw_fetches_init(&client->fetches, &(kw_http_options){0});
  client->authority = kw_blob_copy(authority);
  if (client->authority != NULL) {
    client->session = kw_session_new(&own,
                                     &(kw_session_hooks){.on_message = on_message,
                                                         .on_half_close = on_nothing,
                                                         .on_pull = on_pull,
                                                         .on_end = on_end,
                                                         .on_timeout = on_nothing,
                                                         .on_close = on_nothing,
                                                         .ctx = client},
                                     now);
  }
  if (client->session != NULL) return client;
  kw_client_free(client);
  return NULL;
}

/* Ends every call: with the received status, if all earlier messages were delivered; otherwise as unavailable. A
 * request that was never sent is refused: it can be repeated elsewhere. */
static void end_calls(kw_client *client) {
  kw_stream *stream = NULL;
  if (client->is_http) {
    kw_session_end_exchanges(client->session);
    return;
  }
  char text[KW_CLIENT_WHY + 16];
  const char *why = kw_client_why(client);
  snprintf(text, sizeof text, "keywatch: %s", why != NULL ? why : "the connection has ended");
  while ((stream = kw_session_next(client->session, stream)) != NULL) {
    kw_outcall *call = stream->owner;
    if (call == NULL) continue;
    if (stream->has_status && (stream->has_reported_end || stream->is_reset)) {
      kw_outcall_end(call, stream->status, stream->text, false);
    } else {
      kw_outcall_abort(call, KW_GRPC_UNAVAILABLE, text, !stream->is_sent);
    }
  }
}

/* Ends the calls that were not sent before the server's GOAWAY, since they never will be sent. */
static void refuse_unsent(kw_client *client) {
  kw_stream *stream = NULL;
  if (client->is_http) {
    kw_session_end_exchanges(client->session);
    return;
  }
  while ((stream = kw_session_next(client->session, stream)) != NULL) {
    kw_outcall *call = stream->owner;
    if (call == NULL || stream->is_sent) continue;
    kw_stream_reset(stream, KW_RESET_CANCEL);
    kw_outcall_abort(call, KW_GRPC_UNAVAILABLE, "keywatch: the server has sent GOAWAY", true);
  }
}

static void free_calls(kw_client *client) {
  size_t at = 0;
  kw_outcall *call;
  while ((call = kw_map_next(&client->calls, &at)) != NULL) {
    drop_call(client, call);
    at = 0;
  }
}

void kw_client_free(kw_client *client) {
  kw_driver_init(&client->driver, NULL);
  if (client->session != NULL && !client->is_http) {
    end_calls(client);
    kw_session_free(client->session);
  }
  kw_fetches_drop(&client->fetches);
  free_calls(client);
  while (!kw_link_is_alone(&client->ready_watches)) kw_link_remove(client->ready_watches.next);
  if (client->authority != NULL) kw_blob_release(client->authority);
  kw_map_drop(&client->calls);
  kw_free(client);
}

void kw_client_end(kw_client *client) {
  if (client->is_closed) return;
  if (client->session != NULL) {
    kw_session_leave(client->session);
    end_calls(client);
  } else {
    end(client, "the client is closed");
  }
  kw_driver_touch(&client->driver);
}

void kw_client_dial(kw_client *client, const kw_peer_hooks *hooks, int64_t now) {
  kw_driver_init(&client->driver, hooks);
  step_either(client, now);
  kw_driver_set_deadline(&client->driver, kw_client_deadline(client));
}

/* The options of a session that carries exchanges. */
static kw_session_options session_options(const kw_client *client) {
  kw_session_options options = kw_session_defaults();
  options.is_client = true;
  options.is_tls = client->kind.is_tls;
  options.keepalive_ms = KW_CLIENT_PING_MS;
  options.max_header_bytes = client->fetches.options.max_head;
  options.max_body = UINT64_MAX;
  options.body_ms = 0;
  return options;
}

/* Begins to speak HTTP/2. The session's time for the SETTINGS of the server begins now. */
static bool open_session(kw_client *client, int64_t now) {
  kw_fetches *fetches = &client->fetches;
  kw_session_options options = session_options(client);
  if (client->connect_by < INT64_MAX) options.handshake_ms = client->connect_by - now;
  fetches->session = kw_session_new(&options,
                                    &(kw_session_hooks){.on_half_close = on_nothing,
                                                        .on_pull = on_nothing,
                                                        .on_end = on_nothing,
                                                        .on_timeout = on_nothing,
                                                        .on_close = on_nothing,
                                                        .exchange = &kw_fetch_hooks,
                                                        .ctx = fetches},
                                    now);
  client->session = fetches->session;
  return client->session != NULL;
}

static bool open_http(kw_client *client, int64_t now) {
  kw_fetches *fetches = &client->fetches;
  fetches->http = kw_http_new(&fetches->options, &kw_fetch_hooks, fetches, now);
  return fetches->http != NULL;
}

void kw_client_opened(kw_client *client, bool has_h2, int64_t now) {
  bool is_h2 = has_h2 || client->kind.has_h2;
  client->now = now;
  if (client->session != NULL) {
    kw_session_step(client->session, now);
  } else if (http_of(client) == NULL && !client->has_ended &&
             !(is_h2 ? open_session : open_http)(client, now)) {
    client->has_ended = true;
    snprintf(client->why, sizeof client->why, "out of memory");
  }
  update(client);
}

const char *kw_client_why(const kw_client *client) {
  const char *cause = cause_of(client);
  const char *why = cause[0] != 0 ? cause : client->why;
  return why[0] == 0 ? NULL : why;
}

uint64_t kw_client_hash_seed(const kw_client *client) {
  return client->hash_seed;
}

int64_t kw_client_now(const kw_client *client) {
  return client->now;
}

bool kw_client_is_quiet(const kw_client *client) {
  return client->was_ready && !client->is_closed && kw_link_is_alone(&client->ready_calls) &&
         is_ready(client) && !is_done(client);
}

bool kw_client_has_news(const kw_client *client) {
  return !kw_link_is_alone(&client->ready_calls) || !kw_link_is_alone(&client->ready_watches) ||
         !kw_link_is_alone(&client->fetches.ready) || client->was_closed != client->is_closed ||
         client->was_ready != is_ready(client);
}

kw_client_health kw_client_read_health(kw_client *client) {
  const kw_session *session = client->session;
  client->was_ready = is_ready(client);
  client->was_closed = client->is_closed;
  kw_client_health health = {.is_ready = client->was_ready && !client->is_closed,
                             .is_over = client->is_closed || is_done(client),
                             .data_bytes = client->n_fed};
  if (session != NULL && !client->is_http) {
    health.got_enhance_your_calm = kw_session_got_enhance_your_calm(session);
    health.data_bytes = kw_session_data_bytes(session);
  }
  return health;
}

/* }====== */

/* {====== Bytes and time ====== */

static void closed(void *ctx, const char *why) {
  kw_client *client = ctx;
  if (client->is_closed) return;
  kw_driver_init(&client->driver, NULL);
  client->is_closed = true;
  if (why != NULL && client->why[0] == 0) snprintf(client->why, sizeof client->why, "%s", why);
  end(client, why != NULL ? why : "the connection has ended");
  if (client->session != NULL) end_calls(client);
}

/* Follows the session's state after received bytes or a timer. If the session has ended, its calls end at once, before
 * its socket is closed. After a GOAWAY of the server, calls that were not sent end. */
static void follow_session(kw_client *client) {
  if (client->session != NULL && kw_session_is_done(client->session)) end_calls(client);
  if (client->session != NULL && kw_session_got_goaway(client->session)) refuse_unsent(client);
  update(client);
}

static void feed(void *ctx, const void *bytes, size_t len, int64_t now) {
  kw_client *client = ctx;
  if (client->is_closed) return;
  client->now = now;
  client->n_fed += len;
  if (client->session != NULL) {
    kw_session_feed(client->session, kw_slice_of(bytes, len), now);
  } else if (http_of(client) != NULL) {
    kw_http_feed(http_of(client), kw_slice_of(bytes, len), now);
  }
  follow_session(client);
}

static void cut(void *ctx, int64_t now) {
  const kw_client *client = ctx;
  if (!client->is_closed && http_of(client) != NULL) kw_http_note_cut(http_of(client));
  feed(ctx, NULL, 0, now);
}

static kw_chain *out_of(const kw_client *client) {
  if (client->session != NULL) return kw_session_out(client->session);
  return http_of(client) != NULL ? kw_http_out(http_of(client)) : NULL;
}

size_t kw_client_unsent(const kw_client *client) {
  return out_of(client) == NULL ? 0 : out_of(client)->len;
}

static size_t pending(void *ctx, struct iovec *pieces, size_t max) {
  const kw_client *client = ctx;
  if (client->session != NULL) {
    kw_session_flush(client->session);
  } else if (http_of(client) != NULL) {
    kw_http_flush(http_of(client), client->now);
  }
  return out_of(client) == NULL ? 0 : kw_chain_peek(out_of(client), pieces, max);
}

static void wrote(void *ctx, size_t bytes) {
  kw_client *client = ctx;
  if (out_of(client) == NULL) return;
  kw_chain_skip(out_of(client), bytes);
  if (client->session != NULL) {
    kw_session_wrote(client->session);
  } else {
    kw_http_wrote(http_of(client), client->now);
  }
  kw_driver_set_deadline(&client->driver, kw_client_deadline(client));
}

static unsigned state(const void *ctx) {
  const kw_client *client = ctx;
  if (client->is_closed) return KW_PEER_IS_DONE;
  return kw_driver_state(is_done(client), wants_bytes(client));
}

static void step(void *ctx, int64_t now) {
  kw_client *client = ctx;
  if (client->is_closed) return;
  client->now = now;
  kw_driver_stepped(&client->driver);
  step_either(client, now);
  follow_session(client);
}

const kw_peer_face kw_dialed_face = {feed, pending, wrote, state, step, closed, cut};

/* }====== */
