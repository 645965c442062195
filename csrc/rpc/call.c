/* SPDX-License-Identifier: MIT */
#include "rpc/call.h"

#include "base/mem.h"
#include "model/error.h"
#include "rpc/message_queue.h"
#include "rpc/method.h"

#define CALL_BYTES 4096 /* charge of a call and of its task in Lua */

typedef struct call {
  uint64_t id;
  const kw_method *method;
  kw_stream *stream;         /* NULL: the call has ended */
  kw_account *account;       /* of the connection; NULL: the call has ended */
  kw_blob *metadata;         /* as in kw_call_info; NULL: the call has ended */
  kw_message_queue messages; /* messages that Lua has not received yet */
  unsigned news;             /* KW_CALL_NEWS_ bits that Lua has not taken */
  int status;                /* of the end */
  bool is_intercepted;
  bool input_has_ended; /* no more messages will arrive */
  bool wants_room;      /* Lua waits until it can send */
  kw_link link;         /* in the list of calls with news */
} call;

/* {====== News ====== */

static call *find(const kw_server *server, uint64_t id) {
  return kw_map_get(&server->calls, id);
}

static void announce(kw_server *server, call *c, unsigned news) {
  c->news |= news;
  if (kw_link_is_alone(&c->link)) kw_link_add(&server->news, &c->link);
}

/* Ends a call: detaches it from its stream, and drops its messages, since they are charged to the account of the
 * connection, which may close next. */
static void detach(call *c, const kw_stream *stream) {
  kw_message_queue_clear(&c->messages);
  kw_account_credit(c->account, CALL_BYTES + c->metadata->len);
  kw_blob_release(c->metadata);
  c->metadata = NULL;
  c->account = c->messages.account = NULL;
  c->stream = NULL;
  c->status = stream->has_status ? stream->status : KW_GRPC_CANCELLED;
}

static void call_free(kw_server *server, call *c) {
  kw_link_remove(&c->link);
  kw_map_remove(&server->calls, c->id);
  kw_map_shrink(&server->calls, 0);
  kw_free(c);
}

bool kw_call_has_news(const kw_server *server) {
  return !kw_link_is_alone(&server->news);
}

uint64_t kw_call_next_news(kw_server *server, unsigned *news, int *status) {
  if (!kw_call_has_news(server)) return 0;
  call *c = KW_CONTAINER_OF(server->news.next, call, link);
  uint64_t id = c->id;
  *news = c->news;
  *status = c->status;
  c->news = 0;
  kw_link_remove(&c->link);
  if (*news & KW_CALL_NEWS_END) call_free(server, c);
  return id;
}

/* }====== */

/* {====== Mounted calls ====== */

/* Returns the metadata of the call that is being opened, as in kw_call_info; or NULL if memory is short. */
static kw_blob *copy_metadata(const kw_stream *stream) {
  size_t n, size = 0;
  const kw_header_field *metadata = kw_session_fields(stream->session, &n);
  for (size_t i = 0; i < n; i++) size += metadata[i].name.len + metadata[i].value.len + 2;
  kw_blob *blob = kw_blob_new(size);
  if (blob == NULL) return NULL;
  uint8_t *to = blob->bytes;
  for (size_t i = 0; i < n; i++) {
    const kw_slice parts[] = {metadata[i].name, metadata[i].value};
    for (size_t j = 0; j < KW_LENGTH(parts); j++) {
      if (parts[j].len > 0) memcpy(to, parts[j].data, parts[j].len);
      to += parts[j].len;
      *to++ = 0;
    }
  }
  return blob;
}

static call *call_new(kw_server *server, kw_stream *stream, const kw_method *method) {
  call *c = kw_alloc_zeroed(sizeof *c);
  kw_blob *metadata = copy_metadata(stream);
  if (c == NULL || metadata == NULL || !kw_map_reserve(&server->calls)) {
    kw_free(c);
    if (metadata != NULL) kw_blob_release(metadata);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return NULL;
  }
  c->id = ++server->last_call;
  c->method = method;
  c->stream = stream;
  c->metadata = metadata;
  c->account = kw_session_account(stream->session);
  kw_account_charge(c->account, CALL_BYTES + metadata->len);
  kw_message_queue_init(&c->messages, c->account);
  kw_link_init(&c->link);
  kw_map_put(&server->calls, c->id, c);
  stream->owner = c;
  return c;
}

static void on_open(kw_server *server, kw_stream *stream) {
  call *c = call_new(server, stream, stream->method);
  if (c != NULL && !stream->is_unary) announce(server, c, KW_CALL_NEWS_OPEN);
}

/* Queues a request. Lua gets the first news of a unary call now, with its request. */
static void on_request(kw_server *server, kw_stream *stream, const void *request) {
  call *c = stream->owner;
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
  announce(server, c,
           stream->is_unary ? KW_CALL_NEWS_OPEN | KW_CALL_NEWS_INPUT : KW_CALL_NEWS_INPUT);
}

static void on_half_close(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  c->input_has_ended = true;
  announce(server, c, KW_CALL_NEWS_INPUT);
}

static void on_pull(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  if (c == NULL || !c->wants_room || stream->out.len >= KW_CALL_BYTES) return;
  c->wants_room = false;
  announce(server, c, KW_CALL_NEWS_ROOM);
}

/* Ends a call when its stream closes, or when its deadline has passed: answers may then still wait for the client, but
 * Lua stops working on the call. Lua never sees a unary call that ends before its request has arrived. */
static void on_close(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  if (c == NULL) return;
  bool is_known = !(stream->is_unary && !c->is_intercepted &&
                    kw_message_queue_is_empty(&c->messages) && !stream->has_reported_end);
  detach(c, stream);
  stream->owner = NULL;
  if (is_known) {
    announce(server, c, KW_CALL_NEWS_END);
  } else {
    call_free(server, c);
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
  const call *c = stream->owner;
  (void)server;
  if (c == NULL || c->method->is_unary) return;
  kw_service_fail(stream, KW_ERR_STOPPED);
  kw_stream_resume(stream);
}

/* The method of a call while Lua decides about the call. The stream is paused, so it delivers nothing. */
static const kw_method intercepted = {
    .path = "", .on_timeout = on_close, .on_drain = on_intercepted_drain, .on_close = on_close};

void kw_call_intercept(kw_server *server) {
  server->is_intercepting = true;
}

bool kw_call_begin_intercepted(kw_server *server, kw_stream *stream, const kw_method *method) {
  bool is_mounted = method->on_open == on_open;
  if (!server->is_intercepting || is_mounted) return false;
  call *c = call_new(server, stream, method);
  if (c == NULL) return true;
  c->is_intercepted = true;
  stream->method = &intercepted;
  kw_stream_pause(stream);
  announce(server, c, KW_CALL_NEWS_OPEN);
  return true;
}

/* stream->owner then belongs to the method. The call moves to stream->proceeded_call, so that Lua is notified of its
 * end. */
void kw_call_proceed(kw_server *server, uint64_t id) {
  call *c = find(server, id);
  if (c == NULL || c->stream == NULL || c->stream->method != &intercepted) return;
  kw_stream *stream = c->stream;
  if (stream->is_finished || stream->is_reset) return;
  stream->owner = NULL;
  stream->proceeded_call = c;
  kw_method_begin(server, stream, c->method);
  kw_stream_resume(stream);
  kw_server_touch(stream);
}

void kw_call_end_intercepted(kw_server *server, kw_stream *stream) {
  call *c = stream->proceeded_call;
  if (c == NULL) return;
  stream->proceeded_call = NULL;
  detach(c, stream);
  announce(server, c, KW_CALL_NEWS_END);
}

/* }====== */

/* {====== For Lua ====== */

/* True if Lua may still act on the call: it has not ended, and has not proceeded to its method. */
static bool is_of_lua(const call *c) {
  return c != NULL && c->stream != NULL && c->stream->owner == c;
}

bool kw_call_get_info(kw_server *server, uint64_t id, kw_call_info *info) {
  const call *c = find(server, id);
  if (c == NULL || c->stream == NULL) return false;
  *info = (kw_call_info){.path = c->method->path,
                         .remote = kw_peer_of(c->stream)->driver.hooks.remote,
                         .common_name = kw_peer_of(c->stream)->common_name,
                         .is_intercepted = c->is_intercepted,
                         .is_unary = c->method->is_unary,
                         .deadline = c->stream->has_deadline ? c->stream->deadline.when : INT64_MAX,
                         .metadata = c->metadata};
  return true;
}

kw_received kw_call_receive(kw_server *server, uint64_t id, kw_blob **bytes) {
  call *c = find(server, id);
  if (c == NULL) return KW_RECEIVED_NOTHING;
  if (kw_message_queue_is_empty(&c->messages))
    return c->input_has_ended ? KW_RECEIVED_ALL : KW_RECEIVED_NOTHING;
  *bytes = kw_message_queue_take(&c->messages);
  if (c->stream != NULL && c->stream->wait == KW_WAIT_OWNER && c->messages.charge < KW_CALL_BYTES) {
    kw_stream_resume(c->stream);
    kw_server_touch(c->stream); /* its window may have space now */
  }
  return KW_RECEIVED_MESSAGE;
}

bool kw_call_send(kw_server *server, uint64_t id, kw_slice bytes, bool *has_room) {
  call *c = find(server, id);
  *has_room = false;
  if (!is_of_lua(c) || c->is_intercepted) return true;
  if (c->stream->is_finished || c->stream->is_reset) return true;
  if (c->stream->is_unary && !kw_service_may_answer(c->stream, bytes.len, bytes.len)) {
    kw_service_fail(c->stream, KW_ERR_TOO_MANY_REQUESTS);
    kw_server_touch(c->stream);
    return true;
  }
  uint8_t *to = kw_stream_begin(c->stream, bytes.len);
  if (to == NULL) {
    kw_stream_reset(c->stream, KW_RESET_INTERNAL);
    kw_server_touch(c->stream);
    return false;
  }
  if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
  kw_stream_commit(c->stream, bytes.len);
  *has_room = c->stream->out.len < KW_CALL_BYTES;
  c->wants_room = !*has_room;
  kw_server_touch(c->stream);
  return true;
}

void kw_call_finish(kw_server *server, uint64_t id, int status, kw_slice text) {
  call *c = find(server, id);
  if (!is_of_lua(c)) return;
  kw_stream_finish(c->stream, status, text);
  kw_stream_resume(c->stream); /* further messages are discarded */
  kw_server_touch(c->stream);
}

/* }====== */
