/* SPDX-License-Identifier: MIT */
#include "rpc/call_state.h"

#include "base/mem.h"
#include "model/error.h"
#include "rpc/method.h"
#include "rpc/peer.h"

#define CALL_BYTES 4096 /* charge of a call and of its task in Lua */

/* {====== News ====== */

static kw_call *find(const kw_server *server, uint64_t id) {
  return kw_map_get(&server->calls, id);
}

void kw_call_announce(kw_server *server, kw_call *c, unsigned news) {
  kw_news *queue = c->peer == NULL ? &server->closed_news : &c->peer->news;
  c->news |= news;
  if (kw_link_is_alone(&c->link)) kw_link_add(&queue->calls, &c->link);
  if (kw_link_is_alone(&queue->link)) kw_link_add(&server->news, &queue->link);
}

/* Removes a call from its queue. */
static void withdraw(kw_news *queue, kw_call *c) {
  kw_link_remove(&c->link);
  if (kw_link_is_alone(&queue->calls)) kw_link_remove(&queue->link);
}

/* The messages are charged to the account, too. */
void kw_call_detach(kw_call *c, int status) {
  withdraw(&c->peer->news, c);
  kw_message_queue_clear(&c->messages);
  kw_link_remove(&c->member);
  kw_account_credit(c->account, CALL_BYTES + c->metadata->len + c->gathered);
  kw_blob_release(c->metadata);
  c->metadata = NULL;
  c->account = c->messages.account = NULL;
  c->peer = NULL;
  c->stream = NULL;
  c->exchange = NULL;
  c->status = status;
}

static void detach_from_stream(kw_call *c, const kw_stream *stream) {
  kw_call_detach(c, stream->has_status ? stream->status : KW_GRPC_CANCELLED);
}

void kw_call_free(kw_server *server, kw_call *c) {
  kw_map_remove(&server->calls, c->id);
  kw_map_shrink(&server->calls, 0);
  kw_free(c);
}

uint64_t kw_call_newest(const kw_server *server) {
  return server->last_call;
}

bool kw_call_has_news(const kw_server *server) {
  return !kw_link_is_alone(&server->news);
}

uint64_t kw_call_next_news(kw_server *server, unsigned *news, int *status) {
  if (!kw_call_has_news(server)) return 0;
  kw_news *queue = KW_CONTAINER_OF(server->news.next, kw_news, link);
  kw_call *c = KW_CONTAINER_OF(queue->calls.next, kw_call, link);
  uint64_t id = c->id;
  *news = c->news;
  *status = c->status;
  c->news = 0;
  kw_link_remove(&queue->link);
  kw_link_remove(&c->link);
  if (!kw_link_is_alone(&queue->calls)) kw_link_add(&server->news, &queue->link);
  if (*news & KW_CALL_NEWS_END) kw_call_free(server, c);
  return id;
}

/* }====== */

/* {====== New calls ====== */

static uint8_t to_lower(uint8_t c) {
  return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

kw_blob *kw_call_metadata(const kw_http_field *fields, size_t n) {
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += fields[i].name.len + fields[i].value.len + 2;
  kw_blob *blob = kw_blob_new(size);
  if (blob == NULL) return NULL;
  uint8_t *to = blob->bytes;
  for (size_t i = 0; i < n; i++) {
    kw_slice name = fields[i].name, value = fields[i].value;
    for (size_t j = 0; j < name.len; j++) *to++ = to_lower(name.data[j]);
    *to++ = 0;
    if (value.len > 0) memcpy(to, value.data, value.len);
    to += value.len;
    *to++ = 0;
  }
  return blob;
}

kw_call *kw_call_new(kw_server *server, kw_peer *peer, kw_account *account, kw_blob *metadata) {
  kw_call *c = kw_alloc_zeroed(sizeof *c);
  if (c == NULL || metadata == NULL || !kw_map_reserve(&server->calls)) {
    kw_free(c);
    if (metadata != NULL) kw_blob_release(metadata);
    return NULL;
  }
  c->id = ++server->last_call;
  c->peer = peer;
  c->metadata = metadata;
  c->account = account;
  kw_account_charge(c->account, CALL_BYTES + metadata->len);
  kw_message_queue_init(&c->messages, c->account);
  kw_link_init(&c->member);
  kw_link_init(&c->link);
  kw_map_put(&server->calls, c->id, c);
  return c;
}

/* }====== */

/* {====== The stream of a call ====== */

static void resume_stream(kw_server *server, kw_call *c) {
  (void)server;
  if (c->stream->wait != KW_WAIT_OWNER) return;
  kw_stream_resume(c->stream);
  kw_server_touch(c->stream); /* its window may have space now */
}

/* True if Lua still decides about the call: the call has not proceeded to its method. */
static bool is_of_lua(const kw_call *c) {
  return c->stream->owner == c;
}

static bool send_to_stream(kw_server *server, kw_call *c, kw_slice bytes, bool *has_room) {
  kw_stream *stream = c->stream;
  (void)server;
  if (!is_of_lua(c) || c->is_intercepted || stream->is_finished || stream->is_reset) return true;
  if (stream->is_unary && !kw_service_may_answer(stream, bytes.len, bytes.len)) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    kw_server_touch(stream);
    return true;
  }
  uint8_t *to = kw_stream_begin(stream, bytes.len);
  if (to == NULL) {
    kw_stream_reset(stream, KW_RESET_INTERNAL);
    kw_server_touch(stream);
    return false;
  }
  if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
  kw_stream_commit(stream, bytes.len);
  *has_room = stream->out.len < KW_CALL_BYTES;
  c->wants_room = !*has_room;
  kw_server_touch(stream);
  return true;
}

static bool has_held(const kw_call *c) {
  return c->is_intercepted && !kw_message_queue_is_empty(&c->messages);
}

static void finish_stream(kw_server *server, kw_call *c, int status, kw_slice text) {
  (void)server;
  if (!is_of_lua(c) && !has_held(c)) return;
  kw_stream_finish(c->stream, status, text);
  kw_stream_resume(c->stream); /* further messages are discarded */
  kw_server_touch(c->stream);
}

static const kw_call_carrier stream_carrier = {resume_stream, send_to_stream, finish_stream};

static kw_call *call_new(kw_server *server, kw_stream *stream, const kw_method *method) {
  size_t n;
  const kw_http_field *fields = kw_session_fields(stream->session, &n);
  kw_call *c = kw_call_new(server, kw_peer_of(stream), kw_session_account(stream->session),
                           kw_call_metadata(fields, n));
  if (c == NULL) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return NULL;
  }
  c->carrier = &stream_carrier;
  c->method = method;
  c->stream = stream;
  stream->owner = c;
  return c;
}

/* }====== */

/* {====== Mounted calls ====== */

static void on_open(kw_server *server, kw_stream *stream) {
  kw_call *c = call_new(server, stream, stream->method);
  if (c != NULL && !stream->is_unary) kw_call_announce(server, c, KW_CALL_NEWS_OPEN);
}

/* Queues a request. Lua gets the first news of a unary call now, with its request. */
static void on_request(kw_server *server, kw_stream *stream, const void *request) {
  kw_call *c = stream->owner;
  const kw_slice *message = request;
  if (!kw_account_ask(c->account, kw_message_queue_cost(message->len))) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return;
  }
  if (!kw_message_queue_add(&c->messages, *message)) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  if (c->messages.charge >= KW_CALL_BYTES && !stream->is_unary) kw_stream_pause(stream);
  kw_call_announce(server, c,
                   stream->is_unary ? KW_CALL_NEWS_OPEN | KW_CALL_NEWS_INPUT : KW_CALL_NEWS_INPUT);
}

static void on_half_close(kw_server *server, kw_stream *stream) {
  kw_call *c = stream->owner;
  c->input_has_ended = true;
  kw_call_announce(server, c, KW_CALL_NEWS_INPUT);
}

static void on_pull(kw_server *server, kw_stream *stream) {
  kw_call *c = stream->owner;
  if (c == NULL || !c->wants_room || stream->out.len >= KW_CALL_BYTES) return;
  c->wants_room = false;
  kw_call_announce(server, c, KW_CALL_NEWS_ROOM);
}

/* Ends a call when its stream closes, or when its deadline has passed: answers may then still wait for the client, but
 * Lua stops working on the call. Lua never sees a unary call that ends before its request has arrived. */
static void on_close(kw_server *server, kw_stream *stream) {
  kw_call *c = stream->owner;
  if (c == NULL) return;
  bool is_known = !(stream->is_unary && !c->is_intercepted &&
                    kw_message_queue_is_empty(&c->messages) && !stream->has_reported_end);
  detach_from_stream(c, stream);
  stream->owner = NULL;
  if (is_known) {
    kw_call_announce(server, c, KW_CALL_NEWS_END);
  } else {
    kw_call_free(server, c);
  }
}

bool kw_call_mount(kw_server *server, const char *path, kw_call_kind kind, size_t max_request) {
  kw_method method = {.path = path,
                      .max_request = max_request,
                      .is_unary = kind == KW_CALL_UNARY,
                      .takes_one = kind == KW_CALL_OF_ONE,
                      .on_open = on_open,
                      .on_request = on_request,
                      .on_half_close = on_half_close,
                      .on_pull = on_pull,
                      .on_timeout = on_close,
                      .on_drain = kw_service_stop,
                      .on_close = on_close};
  return kw_method_add(server, &method);
}

bool kw_call_next_method(const kw_server *server, size_t *at, const char **path,
                         const char **request) {
  const kw_method *method = kw_map_next(&server->methods, at);
  if (method == NULL) return false;
  *path = method->path;
  *request = method->request == NULL ? "" : method->request->name;
  return true;
}

/* }====== */

/* {====== Intercepted calls ====== */

/* Does what kw_service_stop does, which does not work here: stream->is_unary is not set before the call proceeds. Later
 * messages are discarded. */
static void on_intercepted_drain(kw_server *server, kw_stream *stream) {
  const kw_call *c = stream->owner;
  (void)server;
  if (c == NULL || c->method->is_unary) return;
  kw_service_fail(stream, KW_ERR_STOPPED);
  kw_stream_resume(stream);
}

/* The method of a call while Lua decides about the call. The stream is paused, until Lua wants its first message. */
static const kw_method intercepted = {.path = "",
                                      .on_half_close = on_half_close,
                                      .on_timeout = on_close,
                                      .on_drain = on_intercepted_drain,
                                      .on_close = on_close};

void kw_call_intercept(kw_server *server) {
  server->is_intercepting = true;
}

void kw_call_inspect(kw_server *server) {
  server->is_inspecting = true;
}

bool kw_call_begin_intercepted(kw_server *server, kw_stream *stream, const kw_method *method) {
  bool is_mounted = method->on_open == on_open;
  if (!server->is_intercepting || is_mounted) return false;
  kw_call *c = call_new(server, stream, method);
  if (c == NULL) return true;
  c->is_intercepted = true;
  c->is_inspected = server->is_inspecting && !method->is_unary;
  stream->method = &intercepted;
  kw_stream_pause(stream);
  kw_call_announce(server, c, KW_CALL_NEWS_OPEN);
  return true;
}

/* stream->owner then belongs to the method. The call moves to stream->proceeded_call, so that Lua is notified of its
 * end. */
static void begin_method(kw_server *server, kw_call *c) {
  kw_stream *stream = c->stream;
  stream->owner = NULL;
  stream->proceeded_call = c;
  kw_method_begin(server, stream, c->method);
  if (c->input_has_ended && c->method->on_half_close != NULL)
    c->method->on_half_close(server, stream);
}

/* Delivers the oldest message that waits, if there is one, and resumes the stream. */
static void deliver_held(kw_call *c) {
  kw_stream *stream = c->stream;
  if (has_held(c) && !stream->is_finished) {
    kw_blob *message = kw_message_queue_take(&c->messages);
    kw_peer_deliver(stream, kw_blob_slice(message));
    kw_blob_release(message);
  }
  kw_stream_resume(stream);
}

void kw_call_proceed(kw_server *server, uint64_t id) {
  kw_call *c = find(server, id);
  if (c == NULL || c->stream == NULL || !c->is_intercepted) return;
  kw_stream *stream = c->stream;
  bool is_new = stream->method == &intercepted;
  if (stream->is_finished || stream->is_reset || !(is_new || has_held(c))) return;
  if (is_new) begin_method(server, c);
  c->is_due = c->method->is_busy != NULL && c->method->is_busy(stream);
  if (!c->is_due) deliver_held(c);
  kw_server_touch(stream);
}

void kw_call_let_in(kw_stream *stream) {
  kw_call *c = stream->proceeded_call;
  if (c == NULL || !has_held(c)) {
    kw_stream_resume(stream);
  } else if (c->is_due) {
    c->is_due = false;
    deliver_held(c);
  }
}

bool kw_call_hold(kw_server *server, kw_stream *stream, kw_slice message) {
  bool is_new = stream->method == &intercepted;
  kw_call *c = is_new ? stream->owner : stream->proceeded_call;
  if (c == NULL || !(is_new || c->is_inspected)) return false;
  if (!kw_account_ask(c->account, kw_message_queue_cost(message.len))) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
  } else if (!kw_message_queue_add(&c->messages, message)) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
  } else {
    kw_stream_pause(stream);
    kw_call_announce(server, c, KW_CALL_NEWS_INPUT);
  }
  return true;
}

/* Lets the first message of a call arrive, as far as the method takes it. */
static void let_arrive(kw_call *c) {
  kw_stream *stream = c->stream;
  if (stream->method != &intercepted || stream->is_finished || stream->is_reset) return;
  kw_method_prepare(stream, c->method);
  kw_stream_resume(stream);
  kw_server_touch(stream);
}

kw_received kw_call_request(kw_server *server, uint64_t id, kw_blob **message, const char **request,
                            size_t *max_fields) {
  kw_call *c = find(server, id);
  if (c == NULL || c->stream == NULL || !c->is_intercepted || c->is_due) return KW_RECEIVED_NOTHING;
  if (!has_held(c) && !c->input_has_ended) let_arrive(c);
  if (!has_held(c)) return c->input_has_ended ? KW_RECEIVED_ALL : KW_RECEIVED_NOTHING;
  *message = kw_blob_retain(kw_message_queue_first(&c->messages));
  *request = c->method->request->name;
  *max_fields = kw_store_most_of_txn(server->store);
  return KW_RECEIVED_MESSAGE;
}

void kw_call_end_intercepted(kw_server *server, kw_stream *stream) {
  kw_call *c = stream->proceeded_call;
  if (c == NULL) return;
  stream->proceeded_call = NULL;
  detach_from_stream(c, stream);
  kw_call_announce(server, c, KW_CALL_NEWS_END);
}

/* }====== */

/* {====== For Lua ====== */

bool kw_call_get_info(kw_server *server, uint64_t id, kw_call_info *info) {
  const kw_call *c = find(server, id);
  if (c == NULL || c->account == NULL) return false;
  const kw_stream *stream = c->stream;
  *info = (kw_call_info){.path = c->method->path,
                         .remote = c->peer->driver.hooks.remote,
                         .identity = c->peer->identity,
                         .is_intercepted = c->is_intercepted,
                         .is_misdirected = c->is_misdirected,
                         .is_unary = c->method->is_unary,
                         .deadline = stream != NULL && stream->has_deadline ? stream->deadline.when
                                                                            : INT64_MAX,
                         .metadata = c->metadata};
  return true;
}

kw_received kw_call_receive(kw_server *server, uint64_t id, bool gathers, kw_blob **bytes) {
  kw_call *c = find(server, id);
  if (c == NULL) return KW_RECEIVED_NOTHING;
  if (kw_message_queue_is_empty(&c->messages))
    return c->input_has_ended ? KW_RECEIVED_ALL : KW_RECEIVED_NOTHING;
  *bytes = kw_message_queue_take(&c->messages);
  if (c->account == NULL) return KW_RECEIVED_MESSAGE;
  if (gathers) {
    c->gathered += (*bytes)->len;
    kw_account_charge(c->account, (*bytes)->len);
  }
  if (c->messages.charge < KW_CALL_BYTES) c->carrier->resume(server, c);
  return KW_RECEIVED_MESSAGE;
}

bool kw_call_send(kw_server *server, uint64_t id, kw_slice bytes, bool *has_room) {
  kw_call *c = find(server, id);
  *has_room = false;
  return c == NULL || c->account == NULL || c->carrier->send(server, c, bytes, has_room);
}

void kw_call_finish(kw_server *server, uint64_t id, int status, kw_slice text) {
  kw_call *c = find(server, id);
  if (c != NULL && c->account != NULL) c->carrier->finish(server, c, status, text);
}

/* }====== */
