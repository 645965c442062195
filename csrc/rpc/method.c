/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/method.h"

#include "base/hash.h"
#include "base/mem.h"
#include "model/error.h"

/* Peers look methods up, but do not add any, so the hash needs no seed. If two paths had the same hash, only the second
 * would be found, and the specs, which call every method, would fail. */
static uint64_t hash(kw_slice path) {
  return kw_hash_bytes(path, 0);
}

static kw_slice path_of(const kw_method *method) {
  return kw_slice_of(method->path, strlen(method->path));
}

/* A method, its counters, and its path. */
typedef struct own_method {
  kw_method method;
  kw_method_counters counters;
  char path[];
} own_method;

/* etcd's buckets, in milliseconds. */
static const kw_buckets handling = {
    .unit = 1e-3, .n = 11, .bounds = {5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}};

static own_method *copy_method(const kw_server *server, const kw_method *method) {
  size_t len = strlen(method->path) + 1;
  own_method *own = kw_alloc_zeroed(sizeof *own + len);
  if (own == NULL) return NULL;
  own->method = *method;
  own->method.path = memcpy(own->path, method->path, len);
  own->method.counters = &own->counters;
  if (server->options.measures_handling) own->counters.seconds.buckets = &handling;
  return own;
}

bool kw_method_add(kw_server *server, const kw_method *method) {
  if (!kw_map_reserve(&server->methods) ||
      !kw_reserve(&server->own, &server->cap_own, server->n_own + 1, sizeof *server->own))
    return false;
  own_method *own = copy_method(server, method);
  if (own == NULL) return false;
  const kw_method *before = kw_method_find(server, path_of(method));
  if (before != NULL) own->method.counters = before->counters;
  server->own[server->n_own++] = &own->method;
  kw_map_put(&server->methods, hash(path_of(method)), &own->method);
  return true;
}

const kw_method *kw_method_find(const kw_server *server, kw_slice path) {
  const kw_method *method = kw_map_get(&server->methods, hash(path));
  return method != NULL && kw_slice_equal(path_of(method), path) ? method : NULL;
}

/* Returns the length of "/service/" in a path, or 0. */
static size_t service_len(kw_slice path) {
  if (path.len == 0 || path.data[0] != '/') return 0;
  for (size_t i = path.len; i-- > 1;) {
    if (path.data[i] == '/') return i + 1;
  }
  return 0;
}

static bool is_known_service(const kw_server *server, kw_slice service) {
  const kw_method *method;
  size_t at = 0;
  while ((method = kw_map_next(&server->methods, &at)) != NULL) {
    kw_slice path = path_of(method);
    if (path.len > service.len && memcmp(path.data, service.data, service.len) == 0) return true;
  }
  return false;
}

static bool has_only_numbers(const kw_message *message) {
  for (size_t i = 0; i < message->n; i++) {
    if (message->fields[i].is_repeated || !kw_field_is_number(&message->fields[i])) return false;
  }
  return true;
}

void kw_method_count(const kw_server *server, const kw_method *method, kw_stream *stream) {
  method->counters->started++;
  stream->sent = &method->counters->sent;
  stream->opened_at = server->now;
}

void kw_method_count_end(const kw_server *server, const kw_stream *stream) {
  if (stream->sent == NULL) return;
  kw_method_counters *counters = KW_CONTAINER_OF(stream->sent, kw_method_counters, sent);
  unsigned status = stream->has_status ? stream->status : KW_GRPC_CANCELLED;
  counters->handled[status < KW_GRPC_CODES ? status : KW_GRPC_UNKNOWN]++;
  if (counters->seconds.buckets != NULL)
    kw_histogram_add(&counters->seconds, server->now - stream->opened_at);
}

void kw_method_prepare(kw_stream *stream, const kw_method *method) {
  size_t *max_len = &stream->splitter.max_len;
  stream->is_unary = method->is_unary;
  stream->takes_one = method->takes_one;
  if (method->max_request > 0) {
    *max_len = kw_min_size(*max_len, method->max_request);
  } else if (method->request != NULL && has_only_numbers(method->request)) {
    *max_len = kw_min_size(*max_len, KW_NUMBERS_REQUEST);
  }
}

void kw_method_begin(kw_server *server, kw_stream *stream, const kw_method *method) {
  kw_method_prepare(stream, method);
  stream->method = method;
  if (method->on_open != NULL) method->on_open(server, stream);
}

bool kw_method_deliver(kw_server *server, kw_stream *stream, kw_slice message, bool has_to_wait) {
  const kw_method *method = stream->method;
  kw_arena_reset(&server->arena);
  server->message = message;
  void *record = kw_arena_alloc(&server->arena, method->request->size);
  int rc = record == NULL ? KW_ERR_NO_MEMORY
                          : kw_message_decode_within(method->request, message,
                                                     kw_store_most_of_txn(server->store),
                                                     &server->arena, record);
  if (rc != KW_OK) {
    kw_service_fail(stream, rc);
  } else if (has_to_wait && !method->only_reads(record)) {
    return true;
  } else {
    method->on_request(server, stream, record);
  }
  return false;
}

void kw_method_refuse(const kw_server *server, kw_stream *stream, kw_slice path) {
  char text[512];
  int n;
  if (path.len == 0) path = kw_slice_of("", 0); /* a request without a path has a NULL pointer */
  size_t len = service_len(path);
  kw_slice name = kw_slice_of(path.data + len, kw_min_size(path.len - len, 200));
  int service = (int)kw_min_size(len >= 2 ? len - 2 : 0, 200);
  if (len < 2) {
    n = snprintf(text, sizeof text, "malformed method name: \"%.*s\"", (int)name.len,
                 (const char *)name.data);
  } else if (is_known_service(server, kw_slice_of(path.data, len))) {
    n = snprintf(text, sizeof text, "unknown method %.*s for service %.*s", (int)name.len,
                 (const char *)name.data, service, (const char *)path.data + 1);
  } else {
    n = snprintf(text, sizeof text, "unknown service %.*s", service, (const char *)path.data + 1);
  }
  kw_stream_finish(stream, KW_GRPC_UNIMPLEMENTED, kw_slice_of(text, (size_t)n));
}
