/* SPDX-License-Identifier: MIT */
#include "rpc/fixed_answer.h"

#include "base/mem.h"

struct kw_fixed_answer {
  kw_fixed_answer *next;
  kw_slice path, type, body; /* in `bytes` */
  uint8_t bytes[];
};

/* Copies a slice to *to, and moves that behind the copy. */
static kw_slice copy(uint8_t **to, kw_slice bytes) {
  kw_slice copied = kw_slice_of(*to, bytes.len);
  if (bytes.len > 0) memcpy(*to, bytes.data, bytes.len);
  *to += bytes.len;
  return copied;
}

/* Returns the place of the answer of a path; or the end of the list, which is NULL. */
static kw_fixed_answer **find(kw_server *server, kw_slice path) {
  kw_fixed_answer **at = &server->fixed_answers;
  while (*at != NULL && !kw_slice_equal((*at)->path, path)) at = &(*at)->next;
  return at;
}

static void remove_at(kw_fixed_answer **at) {
  kw_fixed_answer *fixed = *at;
  *at = fixed->next;
  kw_free(fixed);
}

bool kw_fixed_answer_add(kw_server *server, kw_slice path, kw_slice type, kw_slice body) {
  kw_fixed_answer *fixed = kw_alloc(sizeof *fixed + path.len + type.len + body.len);
  if (fixed == NULL) return false;
  uint8_t *to = fixed->bytes;
  fixed->path = copy(&to, path);
  fixed->type = copy(&to, type);
  fixed->body = copy(&to, body);
  kw_fixed_answer **at = find(server, path);
  if (*at != NULL) remove_at(at);
  fixed->next = server->fixed_answers;
  server->fixed_answers = fixed;
  return true;
}

void kw_fixed_answer_free(kw_server *server) {
  while (server->fixed_answers != NULL) remove_at(&server->fixed_answers);
}

bool kw_fixed_answer_send(kw_server *server, const kw_http_request *request,
                          kw_exchange *exchange) {
  bool is_read = kw_slice_is(request->method, "GET") || kw_slice_is(request->method, "HEAD");
  const kw_fixed_answer *fixed = is_read ? *find(server, request->path) : NULL;
  if (fixed == NULL || server->is_intercepting) return false;
  kw_http_field type = {kw_slice_text("content-type"), fixed->type};
  kw_http_answer answer = {
      .status = 200, .fields = &type, .n_fields = 1, .length = (int64_t)fixed->body.len};
  if (!kw_exchange_answer(exchange, &answer) || !kw_exchange_write(exchange, fixed->body) ||
      !kw_exchange_end(exchange, NULL, 0))
    kw_exchange_abort(exchange);
  return true;
}
