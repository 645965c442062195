/* SPDX-License-Identifier: MIT */
#include "rpc/server.h"

#include "base/mem.h"
#include "codec/wire.h"
#include "model/error.h"
#include "rpc/method.h"
#include "rpc/peer.h"

typedef struct waiting_call {
  uint64_t id;
  const kw_method *method;
  kw_stream *stream;
  kw_blob *request;
  kw_link untaken;
} waiting_call;

kw_server_options kw_server_defaults(void) {
  kw_session_options session = kw_session_defaults();
  session.max_message = KW_DEFAULT_MAX_REQUEST_BYTES + KW_RECEIVE_SLACK;
  return (kw_server_options){.cluster_id = UINT64_C(0xcdf818194e3a8c32),
                             .member_id = UINT64_C(0x8e9e05c52164694d),
                             .raft_term = 2,
                             .max_fragment = session.max_message,
                             .outlet_bytes = KW_DEFAULT_OUTLET_BYTES,
                             .session = session};
}

static bool add_methods(kw_server *server, const kw_method *methods) {
  for (; methods->path != NULL; methods++) {
    if (!kw_method_add(server, methods)) return false;
  }
  return true;
}

kw_server *kw_server_new(kw_store *store, kw_hub *hub, const kw_server_options *options) {
  kw_server *server = kw_alloc_zeroed(sizeof *server);
  if (server == NULL) return NULL;
  server->store = store;
  server->hub = hub;
  server->options = *options;
  kw_link_init(&server->peers);
  kw_link_init(&server->untaken);
  uint8_t *to = kw_wire_put_number(server->ids, 1, options->cluster_id);
  server->n_ids = (size_t)(kw_wire_put_number(to, 2, options->member_id) - server->ids);
  if (add_methods(server, kw_kv_methods) && add_methods(server, kw_lease_methods) &&
      add_methods(server, kw_watch_methods)) {
    return server;
  }
  kw_server_free(server);
  return NULL;
}

void kw_server_close(kw_server *server) {
  server->is_draining = true;
  while (!kw_link_is_alone(&server->peers)) kw_peer_detach(kw_peer_at(server->peers.next));
  server->store = NULL;
  server->hub = NULL;
}

void kw_server_free(kw_server *server) {
  kw_server_close(server);
  for (size_t i = 0; i < server->n_mounted; i++) kw_free(server->mounted[i]);
  kw_free(server->mounted);
  kw_free(server->compactions);
  kw_map_drop(&server->methods);
  kw_map_drop(&server->calls);
  kw_arena_drop(&server->arena);
  kw_free(server);
}

int64_t kw_server_time(const kw_server *server) {
  return server->options.clock != NULL ? *server->options.clock : server->now;
}

/* Watch streams that have got something are gathered at last, after all that could give it to them. */
int64_t kw_server_tend(kw_server *server, int64_t now) {
  bool more = false;
  server->now = now;
  if (server->store == NULL) return INT64_MAX;
  int64_t time = kw_server_time(server);
  if (kw_hub_deadline(server->hub) <= time) more = kw_hub_step(server->hub, time);
  kw_kv_tend(server);
  kw_watch_tend(server);
  if (more) return now;
  return server->options.clock != NULL ? INT64_MAX : kw_hub_deadline(server->hub);
}

bool kw_server_has_work(const kw_server *server) {
  const kw_ready *others = server->options.others;
  if (server->store == NULL) return false;
  return !kw_link_is_alone(&server->untaken) || (others != NULL && others->first != NULL);
}

void kw_server_drain(kw_server *server, int64_t ms, int64_t now) {
  server->is_draining = true;
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next)
    kw_peer_drain(kw_peer_at(link), ms, now);
}

size_t kw_server_count(const kw_server *server) {
  return server->n_peers;
}

/* {====== Calls that are answered elsewhere ====== */

static void call_free(kw_server *server, waiting_call *call) {
  kw_link_remove(&call->untaken);
  kw_map_remove(&server->calls, call->id);
  call->stream->owner = NULL;
  kw_blob_release(call->request);
  kw_free(call);
}

static void on_call(kw_server *server, kw_stream *stream, const void *request) {
  const kw_slice *bytes = request;
  waiting_call *call = kw_alloc(sizeof *call);
  kw_blob *blob = kw_blob_copy(*bytes);
  if (call == NULL || blob == NULL || !kw_map_reserve(&server->calls)) {
    kw_free(call);
    if (blob != NULL) kw_blob_release(blob);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  *call = (waiting_call){
      .id = ++server->last_call, .method = stream->role, .stream = stream, .request = blob};
  kw_link_init(&call->untaken);
  kw_link_add(&server->untaken, &call->untaken);
  kw_map_put(&server->calls, call->id, call);
  stream->owner = call;
}

static void on_call_close(kw_server *server, kw_stream *stream) {
  if (stream->owner != NULL) call_free(server, stream->owner);
}

bool kw_server_mount(kw_server *server, kw_slice path) {
  kw_method *method = kw_alloc(sizeof *method + path.len + 1);
  if (method == NULL) return false;
  char *name = (char *)(method + 1);
  memcpy(name, path.data, path.len);
  name[path.len] = 0;
  *method =
      (kw_method){.path = name, .is_unary = true, .on_request = on_call, .on_close = on_call_close};
  if (kw_reserve(&server->mounted, &server->cap_mounted, server->n_mounted + 1,
                 sizeof *server->mounted) &&
      kw_method_add(server, method)) {
    server->mounted[server->n_mounted++] = method;
    return true;
  }
  kw_free(method);
  return false;
}

bool kw_server_next_call(kw_server *server, kw_call *taken) {
  if (kw_link_is_alone(&server->untaken)) return false;
  waiting_call *call = KW_CONTAINER_OF(server->untaken.next, waiting_call, untaken);
  kw_link_remove(&call->untaken);
  *taken = (kw_call){call->id, call->method->path, kw_blob_slice(call->request)};
  return true;
}

void kw_server_answer(kw_server *server, uint64_t id, kw_slice message) {
  waiting_call *call = kw_map_get(&server->calls, id);
  if (call == NULL) return;
  kw_stream *stream = call->stream;
  uint8_t *to = kw_stream_begin(stream, message.len);
  call_free(server, call);
  if (to != NULL) {
    if (message.len > 0) memcpy(to, message.data, message.len);
    kw_stream_commit(stream, message.len);
    kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
  } else {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
  }
  kw_server_touch(stream);
}

void kw_server_fail(kw_server *server, uint64_t id, int status, kw_slice text) {
  waiting_call *call = kw_map_get(&server->calls, id);
  if (call == NULL) return;
  kw_stream *stream = call->stream;
  call_free(server, call);
  kw_stream_finish(stream, status, text);
  kw_server_touch(stream);
}

/* }====== */
