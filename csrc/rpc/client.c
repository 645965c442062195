/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/client.h"

#include "base/map.h"
#include "base/mem.h"

#define MESSAGE_BYTES 64 /* what a message is charged beside its bytes */

typedef struct kept_message {
  kw_blob *bytes;
  kw_link link;
} kept_message;

/* A call, from its beginning until its end was taken. */
typedef struct outcall {
  kw_client *client;
  kw_stream *stream; /* NULL: it has ended */
  uint64_t number;
  kw_call_hooks hooks; /* without functions: what comes is kept */
  kw_link messages;    /* oldest first */
  size_t untaken;      /* bytes of them */
  kw_link ready;
  kw_blob *text; /* of the status */
  uint8_t status;
  bool is_unary : 1;
  bool is_refused : 1;
  bool is_armed : 1;   /* ready as soon as something comes */
  bool wants_room : 1; /* ready as soon as what was sent has left */
  bool is_paused : 1;  /* too much of it was not taken */
} outcall;

struct kw_client {
  kw_session *session;
  kw_blob *authority;
  kw_map calls; /* outcalls by number */
  uint64_t last_call;
  kw_link ready;         /* outcalls */
  kw_link ready_watches; /* subscriptions */
  size_t max_untaken;

  kw_peer_hooks hooks; /* without functions: Lua moves the bytes */
  int64_t told;        /* the deadline that the driver knows */
  bool is_closed;
  bool was_ready;          /* Lua has heard that it takes calls */
  bool was_closed;         /* Lua has heard that it does not any more */
  char why[KW_CLIENT_WHY]; /* it was closed */
};

/* {====== The driver ====== */

static void touch(kw_client *client) {
  if (client->hooks.on_dirty != NULL) client->hooks.on_dirty(client->hooks.ctx);
}

/* One that moves away is not told: the driver comes too early, once. */
static void tell_deadline(kw_client *client) {
  if (client->hooks.on_deadline == NULL) return;
  int64_t due = kw_session_deadline(client->session);
  if (due >= client->told) return;
  client->told = due;
  client->hooks.on_deadline(client->hooks.ctx, due);
}

static void moved(kw_client *client) {
  tell_deadline(client);
  touch(client);
}

/* }====== */

/* {====== What comes back ====== */

static bool has_something(const outcall *call) {
  if (call->stream == NULL) return true;
  return !call->is_unary && !kw_link_is_alone(&call->messages);
}

static void make_ready(outcall *call) {
  if (!call->is_armed || !has_something(call) || call->hooks.on_message != NULL) return;
  call->is_armed = false;
  if (kw_link_is_alone(&call->ready)) kw_link_add(&call->client->ready, &call->ready);
}

static void drop_message(outcall *call, kept_message *kept) {
  kw_link_remove(&kept->link);
  call->untaken -= MESSAGE_BYTES + kept->bytes->len;
  kw_free(kept);
}

static kept_message *first_message(const outcall *call) {
  if (kw_link_is_alone(&call->messages)) return NULL;
  return KW_CONTAINER_OF(call->messages.next, kept_message, link);
}

static void forget_messages(outcall *call) {
  kept_message *kept;
  while ((kept = first_message(call)) != NULL) {
    kw_blob *bytes = kept->bytes;
    drop_message(call, kept);
    kw_blob_release(bytes);
  }
}

static void free_call(outcall *call) {
  kw_map_remove(&call->client->calls, call->number);
  forget_messages(call);
  kw_link_remove(&call->ready);
  if (call->text != NULL) kw_blob_release(call->text);
  kw_free(call);
}

static void set_text(outcall *call, const char *text) {
  if (call->text != NULL) kw_blob_release(call->text);
  call->text = kw_blob_copy(kw_slice_of(text, strlen(text)));
}

static void end_hooked(outcall *call) {
  kw_call_hooks hooks = call->hooks;
  call->hooks = (kw_call_hooks){0};
  if (hooks.on_end != NULL) hooks.on_end(hooks.ctx);
}

/* Ends a call from this side with a status of our own: its stream is reset, and heard no more. */
static void fail(outcall *call, int status, const char *text) {
  kw_stream *stream = call->stream;
  call->status = (uint8_t)status;
  set_text(call, text);
  forget_messages(call);
  call->stream = NULL;
  stream->owner = NULL;
  kw_stream_reset(stream, KW_RESET_CANCEL);
  end_hooked(call);
  make_ready(call);
}

static bool keep(outcall *call, kw_slice message) {
  kept_message *kept = kw_alloc(sizeof *kept);
  if (kept == NULL) return false;
  kept->bytes = kw_blob_copy(message);
  if (kept->bytes == NULL) {
    kw_free(kept);
    return false;
  }
  kw_link_init(&kept->link);
  kw_link_add(&call->messages, &kept->link);
  call->untaken += MESSAGE_BYTES + message.len;
  return true;
}

static void on_message(kw_stream *stream, kw_slice message, void *ctx) {
  kw_client *client = ctx;
  outcall *call = stream->owner;
  if (call == NULL) return;
  if (call->hooks.on_message != NULL) {
    call->hooks.on_message(call->hooks.ctx, message);
  } else if (call->is_unary && !kw_link_is_alone(&call->messages)) {
    fail(call, KW_GRPC_INTERNAL, "keywatch: more than one message in a unary answer");
  } else if (!keep(call, message)) {
    fail(call, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: out of memory");
  } else {
    if (call->untaken > client->max_untaken && !call->is_unary) {
      call->is_paused = true;
      kw_stream_pause(stream);
    }
    make_ready(call);
  }
}

static void on_end(kw_stream *stream, void *ctx) {
  outcall *call = stream->owner;
  (void)ctx;
  if (call == NULL) return; /* it was cancelled */
  call->stream = NULL;
  call->status = stream->status;
  call->is_refused = stream->is_refused;
  if (stream->text != NULL) call->text = kw_blob_retain(stream->text);
  end_hooked(call);
  make_ready(call);
}

static void on_nothing(kw_stream *stream, void *ctx) {
  (void)stream, (void)ctx;
}

static void on_pull(kw_stream *stream, void *ctx) {
  outcall *call = stream->owner;
  (void)ctx;
  if (call == NULL || !call->wants_room) return;
  call->wants_room = false;
  if (kw_link_is_alone(&call->ready)) kw_link_add(&call->client->ready, &call->ready);
}

static kw_return take_message(outcall *call) {
  kept_message *kept = first_message(call);
  kw_return what = {.kind = KW_RETURN_MESSAGE, .bytes = kept->bytes};
  drop_message(call, kept);
  if (!call->is_paused || call->untaken > call->client->max_untaken / 2) return what;
  call->is_paused = false;
  if (call->stream == NULL) return what;
  kw_stream_resume(call->stream);
  moved(call->client);
  return what;
}

static kw_return take_end(outcall *call) {
  kw_return what = {.kind = KW_RETURN_END,
                    .status = call->status,
                    .is_refused = call->is_refused,
                    .bytes = call->text};
  call->text = NULL;
  free_call(call);
  return what;
}

kw_return kw_client_take(kw_client *client, uint64_t number) {
  outcall *call = kw_map_get(&client->calls, number);
  if (call == NULL) return (kw_return){.kind = KW_RETURN_NOTHING};
  bool is_due = !call->is_unary || call->stream == NULL;
  if (is_due && !kw_link_is_alone(&call->messages)) return take_message(call);
  if (call->stream == NULL) return take_end(call);
  call->is_armed = true;
  return (kw_return){.kind = KW_RETURN_NOTHING};
}

uint64_t kw_client_next_ready(kw_client *client) {
  if (kw_link_is_alone(&client->ready)) return 0;
  outcall *call = KW_CONTAINER_OF(client->ready.next, outcall, ready);
  kw_link_remove(&call->ready);
  return call->number;
}

kw_link *kw_client_ready_watches(kw_client *client) {
  return &client->ready_watches;
}

/* }====== */

/* {====== Calls ====== */

static outcall *new_call(kw_client *client, bool is_unary, const kw_call_hooks *hooks) {
  outcall *call = kw_alloc_zeroed(sizeof *call);
  if (call == NULL) return NULL;
  call->client = client;
  call->number = client->last_call + 1;
  call->is_unary = is_unary;
  call->is_armed = true;
  if (hooks != NULL) call->hooks = *hooks;
  kw_link_init(&call->messages);
  kw_link_init(&call->ready);
  return call;
}

uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_header_field *lines, size_t n,
                        bool is_unary, const kw_call_hooks *hooks) {
  if (!kw_map_reserve(&client->calls)) return 0;
  outcall *call = new_call(client, is_unary, hooks);
  if (call == NULL) return 0;
  call->stream =
      kw_session_request(client->session, kw_blob_slice(client->authority), path, lines, n, call);
  if (call->stream == NULL) {
    kw_free(call);
    return 0;
  }
  kw_map_put(&client->calls, call->number, call);
  moved(client);
  return client->last_call = call->number;
}

static outcall *find_live(const kw_client *client, uint64_t number) {
  outcall *call = kw_map_get(&client->calls, number);
  return call == NULL || call->stream == NULL ? NULL : call;
}

bool kw_client_is_live(const kw_client *client, uint64_t number) {
  return find_live(client, number) != NULL;
}

bool kw_client_send(kw_client *client, uint64_t number, kw_slice message) {
  outcall *call = find_live(client, number);
  if (call == NULL) return true;
  uint8_t *to = kw_stream_begin(call->stream, message.len);
  if (to == NULL) return false;
  if (message.len > 0) memcpy(to, message.data, message.len);
  kw_stream_commit(call->stream, message.len);
  moved(client);
  return true;
}

void kw_client_half_close(kw_client *client, uint64_t number) {
  outcall *call = find_live(client, number);
  if (call == NULL) return;
  kw_stream_half_close(call->stream);
  moved(client);
}

bool kw_client_has_room(kw_client *client, uint64_t number, size_t max) {
  outcall *call = find_live(client, number);
  if (call == NULL || call->stream->out.len <= max) return true;
  call->wants_room = true;
  return false;
}

void kw_client_cancel(kw_client *client, uint64_t number) {
  outcall *call = kw_map_get(&client->calls, number);
  if (call == NULL) return;
  if (call->stream != NULL) {
    call->stream->owner = NULL;
    kw_stream_reset(call->stream, KW_RESET_CANCEL);
  }
  end_hooked(call);
  free_call(call);
  moved(client);
}

void kw_client_fail(kw_client *client, uint64_t number, int status, const char *text) {
  outcall *call = find_live(client, number);
  if (call == NULL) return;
  fail(call, status, text);
  moved(client);
}

const kw_call_hooks *kw_client_hooks(const kw_client *client, uint64_t number) {
  const outcall *call = find_live(client, number);
  return call == NULL ? NULL : &call->hooks;
}

void kw_client_pause(kw_client *client, uint64_t number) {
  outcall *call = find_live(client, number);
  if (call != NULL) kw_stream_pause(call->stream);
}

void kw_client_resume(kw_client *client, uint64_t number) {
  outcall *call = find_live(client, number);
  if (call == NULL) return;
  kw_stream_resume(call->stream);
  moved(client);
}

/* }====== */

/* {====== Life ====== */

kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         int64_t now) {
  kw_client *client = kw_alloc_zeroed(sizeof *client);
  if (client == NULL) return NULL;
  kw_session_options own = *options;
  own.is_client = true;
  client->max_untaken = max_untaken;
  client->told = INT64_MAX;
  kw_link_init(&client->ready);
  kw_link_init(&client->ready_watches);
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

static void end_call(outcall *call, int status, const char *text, bool is_refused) {
  call->stream->owner = NULL;
  call->stream = NULL;
  call->status = (uint8_t)status;
  call->is_refused = is_refused;
  if (text != NULL) set_text(call, text);
  end_hooked(call);
  make_ready(call);
}

/* A status that came counts only if all that came before it has been told. */
static void end_calls(kw_client *client) {
  kw_stream *stream = NULL;
  char text[160];
  const char *why = kw_client_why(client);
  snprintf(text, sizeof text, "keywatch: %s", why != NULL ? why : "the connection has ended");
  while ((stream = kw_session_next(client->session, stream)) != NULL) {
    outcall *call = stream->owner;
    if (call == NULL) continue;
    if (stream->has_status && (stream->has_reported_end || stream->is_reset)) {
      if (stream->text != NULL) call->text = kw_blob_retain(stream->text);
      end_call(call, stream->status, NULL, false);
    } else {
      end_call(call, KW_GRPC_UNAVAILABLE, text, !stream->is_sent);
    }
  }
}

/* A server that goes has not seen what was not sent: nobody waits until it could be. */
static void refuse_unsent(kw_client *client) {
  kw_stream *stream = NULL;
  while ((stream = kw_session_next(client->session, stream)) != NULL) {
    outcall *call = stream->owner;
    if (call == NULL || stream->is_sent) continue;
    kw_stream_reset(stream, KW_RESET_CANCEL);
    end_call(call, KW_GRPC_UNAVAILABLE, "keywatch: the server goes away", true);
  }
}

static void free_calls(kw_client *client) {
  size_t at = 0;
  outcall *call;
  while ((call = kw_map_next(&client->calls, &at)) != NULL) {
    end_hooked(call);
    free_call(call);
    at = 0;
  }
}

void kw_client_free(kw_client *client) {
  client->hooks = (kw_peer_hooks){0};
  if (client->session != NULL) {
    end_calls(client);
    kw_session_free(client->session);
  }
  free_calls(client);
  while (!kw_link_is_alone(&client->ready_watches)) kw_link_remove(client->ready_watches.next);
  if (client->authority != NULL) kw_blob_release(client->authority);
  kw_map_drop(&client->calls);
  kw_free(client);
}

void kw_client_end(kw_client *client) {
  if (client->is_closed) return;
  kw_session_leave(client->session);
  end_calls(client);
  touch(client);
}

void kw_client_dial(kw_client *client, const kw_peer_hooks *hooks, int64_t now) {
  client->hooks = *hooks;
  kw_session_step(client->session, now);
  tell_deadline(client);
}

void kw_client_opened(kw_client *client, int64_t now) {
  kw_session_step(client->session, now);
  moved(client);
}

void kw_client_closed(kw_client *client, const char *why) {
  if (client->is_closed) return;
  client->hooks = (kw_peer_hooks){0};
  client->is_closed = true;
  if (why != NULL) snprintf(client->why, sizeof client->why, "%s", why);
  kw_session_end(client->session);
  end_calls(client);
}

bool kw_client_is_ready(const kw_client *client) {
  return !client->is_closed && kw_session_is_ready(client->session);
}

bool kw_client_is_closed(const kw_client *client) {
  return client->is_closed;
}

const char *kw_client_why(const kw_client *client) {
  const char *told = kw_session_why(client->session);
  const char *why = told[0] != 0 ? told : client->why;
  return why[0] == 0 ? NULL : why;
}

bool kw_client_got_enhance_your_calm(const kw_client *client) {
  return kw_session_got_enhance_your_calm(client->session);
}

bool kw_client_has_news(const kw_client *client) {
  return !kw_link_is_alone(&client->ready) || !kw_link_is_alone(&client->ready_watches) ||
         client->was_closed != client->is_closed ||
         client->was_ready != kw_session_is_ready(client->session);
}

void kw_client_heard(kw_client *client) {
  client->was_ready = kw_session_is_ready(client->session);
  client->was_closed = client->is_closed;
}

/* }====== */

/* {====== Bytes and time ====== */

/* A session that has ended by itself has ended its calls, too, before its socket is closed. */
static void settle(kw_client *client) {
  if (kw_session_is_done(client->session)) end_calls(client);
  if (kw_session_got_goaway(client->session)) refuse_unsent(client);
  moved(client);
}

void kw_client_feed(kw_client *client, kw_slice bytes, int64_t now) {
  if (client->is_closed) return;
  kw_session_feed(client->session, bytes, now);
  settle(client);
}

size_t kw_client_pending(kw_client *client, struct iovec *pieces, size_t max) {
  kw_session_flush(client->session);
  return kw_chain_peek(kw_session_out(client->session), pieces, max);
}

void kw_client_wrote(kw_client *client, size_t bytes) {
  kw_chain_skip(kw_session_out(client->session), bytes);
  kw_session_wrote(client->session);
  tell_deadline(client);
}

unsigned kw_client_state(const kw_client *client) {
  if (client->is_closed || kw_session_is_done(client->session)) return KW_PEER_IS_DONE;
  return kw_session_wants_bytes(client->session) ? KW_PEER_WANTS_BYTES : 0;
}

int64_t kw_client_deadline(const kw_client *client) {
  return kw_session_deadline(client->session);
}

void kw_client_step(kw_client *client, int64_t now) {
  if (client->is_closed) return;
  client->told = INT64_MAX;
  kw_session_step(client->session, now);
  settle(client);
}

/* }====== */

#ifdef KW_PROBE

const char *kw_client_fault(const kw_client *client) {
  if (kw_session_account(client->session)->held != kw_session_charge(client->session))
    return "the account is not charged for what the connection holds";
  return kw_session_fault(client->session);
}

#endif
