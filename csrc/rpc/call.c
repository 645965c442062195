/* SPDX-License-Identifier: MIT */
#include "rpc/call.h"

#include "base/mem.h"
#include "model/error.h"
#include "rpc/method.h"

#define MESSAGE_BYTES 64 /* what a message is charged beside its bytes */
#define CALL_BYTES 4096  /* a call, with its task in Lua */

typedef struct message {
  kw_link link;
  kw_blob *bytes;
} message;

typedef struct call {
  uint64_t id;
  const kw_method *method;
  kw_stream *stream;   /* NULL: gone */
  kw_account *account; /* of its connection; NULL likewise */
  kw_blob *lines;
  kw_link messages; /* that were not received yet */
  size_t charge;    /* for them, in bytes */
  unsigned news;
  int status;
  bool is_intercepted;
  bool is_over_input; /* no more messages will come */
  bool wants_room;
  kw_link link; /* among those that have news */
} call;

/* {====== News ====== */

static call *find(const kw_server *server, uint64_t id) {
  return kw_map_get(&server->calls, id);
}

static void tell(kw_server *server, call *c, unsigned news) {
  c->news |= news;
  if (kw_link_is_alone(&c->link)) kw_link_add(&server->news, &c->link);
}

static message *first_message(call *c) {
  return kw_link_is_alone(&c->messages) ? NULL : KW_CONTAINER_OF(c->messages.next, message, link);
}

static kw_blob *take_message(call *c) {
  message *m = first_message(c);
  kw_blob *bytes = m->bytes;
  kw_link_remove(&m->link);
  c->charge -= MESSAGE_BYTES + bytes->len;
  kw_account_credit(c->account, MESSAGE_BYTES + bytes->len);
  kw_free(m);
  return bytes;
}

/* Its stream goes: nobody asks for what it has said any more, and its connection may go next. */
static void part(call *c) {
  while (first_message(c) != NULL) kw_blob_release(take_message(c));
  kw_account_credit(c->account, CALL_BYTES + c->lines->len);
  kw_blob_release(c->lines);
  c->lines = NULL;
  c->account = NULL;
  c->stream = NULL;
}

static void call_free(kw_server *server, call *c) {
  kw_link_remove(&c->link);
  kw_map_remove(&server->calls, c->id);
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
  if (*news & KW_NEWS_END) call_free(server, c);
  return id;
}

/* }====== */

/* {====== Calls that come ====== */

/* The metadata of the call that is being opened, in one blob. */
static kw_blob *copy_lines(const kw_stream *stream) {
  size_t n, size = 0;
  const kw_header_field *lines = kw_session_fields(stream->session, &n);
  for (size_t i = 0; i < n; i++) size += lines[i].name.len + lines[i].value.len + 2;
  kw_blob *blob = kw_blob_new(size);
  if (blob == NULL) return NULL;
  uint8_t *to = blob->bytes;
  for (size_t i = 0; i < n; i++) {
    const kw_slice parts[] = {lines[i].name, lines[i].value};
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
  kw_blob *lines = copy_lines(stream);
  if (c == NULL || lines == NULL || !kw_map_reserve(&server->calls)) {
    kw_free(c);
    if (lines != NULL) kw_blob_release(lines);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return NULL;
  }
  c->id = ++server->last_call;
  c->method = method;
  c->stream = stream;
  c->lines = lines;
  c->account = kw_session_account(stream->session);
  kw_account_charge(c->account, CALL_BYTES + lines->len);
  kw_link_init(&c->messages);
  kw_link_init(&c->link);
  kw_map_put(&server->calls, c->id, c);
  stream->owner = c;
  return c;
}

static void on_open(kw_server *server, kw_stream *stream) {
  call *c = call_new(server, stream, stream->role);
  if (c != NULL && !stream->is_unary) tell(server, c, KW_NEWS_OPEN);
}

/* A unary call is told of once, with its request. */
static void on_request(kw_server *server, kw_stream *stream, const void *request) {
  call *c = stream->owner;
  size_t charge = MESSAGE_BYTES + ((const kw_slice *)request)->len;
  if (!kw_account_ask(c->account, charge)) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return;
  }
  message *m = kw_alloc(sizeof *m);
  kw_blob *bytes = kw_blob_copy(*(const kw_slice *)request);
  if (m == NULL || bytes == NULL) {
    kw_free(m);
    if (bytes != NULL) kw_blob_release(bytes);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  m->bytes = bytes;
  kw_link_init(&m->link);
  kw_link_add(&c->messages, &m->link);
  c->charge += charge;
  kw_account_charge(c->account, charge);
  if (c->charge >= KW_CALL_BYTES && !stream->is_unary) kw_stream_pause(stream);
  tell(server, c, stream->is_unary ? KW_NEWS_OPEN | KW_NEWS_INPUT : KW_NEWS_INPUT);
}

static void on_half_close(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  c->is_over_input = true;
  tell(server, c, KW_NEWS_INPUT);
}

static void on_pull(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  if (c == NULL || !c->wants_room || stream->out.len >= KW_CALL_BYTES) return;
  c->wants_room = false;
  tell(server, c, KW_NEWS_ROOM);
}

/* Its stream goes, or its time is over: then what was sent may still wait for the client, but nobody works for it any
 * more. A unary call that was never told of goes without a word. */
static void on_close(kw_server *server, kw_stream *stream) {
  call *c = stream->owner;
  if (c == NULL) return;
  bool is_known = !(stream->is_unary && !c->is_intercepted && first_message(c) == NULL &&
                    !stream->has_reported_end);
  part(c);
  c->status = stream->has_status ? stream->status : KW_GRPC_CANCELLED;
  stream->owner = NULL;
  if (is_known) {
    tell(server, c, KW_NEWS_END);
  } else {
    call_free(server, c);
  }
}

static void on_drain(kw_server *server, kw_stream *stream) {
  (void)server;
  if (!stream->is_unary) kw_service_fail(stream, KW_ERR_STOPPED);
}

bool kw_call_mount(kw_server *server, kw_slice path, kw_call_kind kind) {
  kw_method *method = kw_alloc(sizeof *method + path.len + 1);
  if (method == NULL) return false;
  char *name = (char *)(method + 1);
  memcpy(name, path.data, path.len);
  name[path.len] = 0;
  *method = (kw_method){.path = name,
                        .is_unary = kind == KW_CALL_UNARY,
                        .takes_one = kind == KW_CALL_OF_ONE,
                        .on_open = on_open,
                        .on_request = on_request,
                        .on_half_close = on_half_close,
                        .on_pull = on_pull,
                        .on_timeout = on_close,
                        .on_drain = on_drain,
                        .on_close = on_close};
  if (kw_reserve(&server->mounted, &server->cap_mounted, server->n_mounted + 1,
                 sizeof *server->mounted) &&
      kw_method_add(server, method)) {
    server->mounted[server->n_mounted++] = method;
    return true;
  }
  kw_free(method);
  return false;
}

/* }====== */

/* {====== Calls that are intercepted ====== */

/* While Lua looks at a call its method is this one, and nothing is heard of it. */
static const kw_method intercepted = {.path = "", .on_timeout = on_close, .on_close = on_close};

void kw_call_intercept(kw_server *server) {
  server->is_intercepting = true;
}

bool kw_call_begin_intercepted(kw_server *server, kw_stream *stream, const kw_method *method) {
  bool is_mounted = method->on_open == on_open;
  if (!server->is_intercepting || is_mounted) return false;
  call *c = call_new(server, stream, method);
  if (c == NULL) return true;
  c->is_intercepted = true;
  stream->role = &intercepted;
  kw_stream_pause(stream);
  tell(server, c, KW_NEWS_OPEN);
  return true;
}

/* The call stays, beside the method's own state, to tell of the end: it is found by the stream. */
void kw_call_proceed(kw_server *server, uint64_t id) {
  call *c = find(server, id);
  if (c == NULL || c->stream == NULL || c->stream->role != &intercepted) return;
  kw_stream *stream = c->stream;
  stream->owner = NULL;
  stream->watched = c;
  stream->role = c->method;
  stream->is_unary = c->method->is_unary;
  stream->takes_one = c->method->takes_one;
  if (c->method->on_open != NULL) c->method->on_open(server, stream);
  kw_stream_resume(stream);
  kw_server_touch(stream);
}

void kw_call_end_intercepted(kw_server *server, kw_stream *stream) {
  call *c = stream->watched;
  if (c == NULL) return;
  stream->watched = NULL;
  part(c);
  c->status = stream->has_status ? stream->status : KW_GRPC_CANCELLED;
  tell(server, c, KW_NEWS_END);
}

/* }====== */

/* {====== What Lua does ====== */

bool kw_call_get_info(kw_server *server, uint64_t id, kw_call_info *info) {
  const call *c = find(server, id);
  if (c == NULL || c->stream == NULL) return false;
  *info = (kw_call_info){.path = c->method->path,
                         .remote = kw_server_remote(c->stream),
                         .is_intercepted = c->is_intercepted,
                         .is_unary = c->method->is_unary,
                         .deadline = c->stream->has_deadline ? c->stream->deadline.when : INT64_MAX,
                         .lines = c->lines};
  return true;
}

kw_received kw_call_receive(kw_server *server, uint64_t id, kw_blob **bytes) {
  call *c = find(server, id);
  if (c == NULL) return KW_RECEIVED_NOTHING;
  if (first_message(c) == NULL) return c->is_over_input ? KW_RECEIVED_ALL : KW_RECEIVED_NOTHING;
  *bytes = take_message(c);
  if (c->stream != NULL && c->stream->is_paused && c->charge < KW_CALL_BYTES) {
    kw_stream_resume(c->stream);
    kw_server_touch(c->stream); /* its window may have opened */
  }
  return KW_RECEIVED_MESSAGE;
}

bool kw_call_send(kw_server *server, uint64_t id, kw_slice bytes, bool *has_room) {
  call *c = find(server, id);
  *has_room = false;
  if (c == NULL || c->stream == NULL || c->stream->is_finished || c->stream->is_reset) return true;
  if (c->stream->is_unary && !kw_service_may_answer(c->stream, bytes.len, bytes.len)) {
    kw_service_fail(c->stream, KW_ERR_TOO_MANY_REQUESTS);
    kw_server_touch(c->stream);
    return true;
  }
  uint8_t *to = kw_stream_begin(c->stream, bytes.len);
  if (to == NULL) {
    kw_stream_reset(c->stream, KW_RESET_INTERNAL);
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
  if (c == NULL || c->stream == NULL) return;
  kw_stream_finish(c->stream, status, text);
  if (c->stream->is_paused) kw_stream_resume(c->stream); /* to be thrown away */
  kw_server_touch(c->stream);
}

/* }====== */

#ifdef KW_PROBE

static bool is_of_lua(const kw_method *method) {
  return method == &intercepted || (method != NULL && method->on_open == on_open);
}

size_t kw_call_charge(const kw_stream *stream) {
  const call *c = is_of_lua(stream->role) ? stream->owner : stream->watched;
  return c == NULL ? 0 : CALL_BYTES + c->lines->len + c->charge;
}

#endif
