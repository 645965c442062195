/* SPDX-License-Identifier: MIT */
#include "rpc/lease_answer.h"

#include "base/mem.h"
#include "model/error.h"
#include "rpc/long_answer.h"
#include "store/lease_read.h"

typedef struct lease_answer {
  kw_long_answer base;
  kw_lease_read *read;
  kw_lease_message lease; /* whose keys are listed; its id is 0 if leases are listed */
  bool is_listed;         /* the list is complete: the next pages are parts of the message */
} lease_answer;

static void free_answer(lease_answer *a) {
  kw_stream *stream = a->base.stream;
  kw_link_remove(&a->base.link);
  kw_account_credit(kw_session_account(stream->session), a->base.charged);
  stream->owner = NULL;
  kw_lease_read_free(a->read);
  kw_free(a);
}

static void fail(lease_answer *a, int rc) {
  kw_stream *stream = a->base.stream;
  kw_stream_forget(stream);
  free_answer(a);
  kw_service_fail(stream, rc);
}

/* {====== Pages ====== */

static bool add_message(lease_answer *a, const kw_message *message, const void *record) {
  kw_chain *out = &a->base.stream->out;
  size_t len = kw_message_rest_size(message, record);
  if (!kw_account_ask(kw_session_account(a->base.stream->session), len)) return false;
  uint8_t *to = kw_chain_reserve(out, len);
  if (to == NULL) return false;
  kw_message_put_rest(message, record, to);
  kw_chain_commit(out, len);
  kw_stream_count(a->base.stream);
  return true;
}

/* Returns how many items a page may have. An empty list has one page. */
static size_t room_for(const lease_answer *a, const kw_work *work) {
  return kw_min_size(kw_lease_read_left(a->read) + 1, (size_t)work->left);
}

/* Adds a page of keys. Returns KW_OK if it was the last one. */
static int add_keys(kw_server *server, lease_answer *a, kw_work *work) {
  size_t n = 0, most = room_for(a, work);
  kw_slice *keys = kw_arena_array(&server->arena, most, sizeof *keys);
  bool more = keys != NULL;
  while (more && n < most && kw_work_is_left(work)) {
    more = kw_lease_read_next_key(a->read, &keys[n]);
    if (more) kw_work_spend(work, keys[n++].len);
  }
  kw_lease_message page = {.keys = {keys, n}};
  if (keys == NULL || !add_message(a, &kw_msg_lease_time_to_live_response, &page))
    return KW_ERR_TOO_MANY_REQUESTS;
  return more ? KW_UNFINISHED : KW_OK;
}

/* Adds a page of leases, like add_keys. */
static int add_leases(kw_server *server, lease_answer *a, kw_work *work) {
  size_t n = 0, most = room_for(a, work);
  int64_t *ids = kw_arena_array(&server->arena, most, sizeof *ids);
  bool more = ids != NULL;
  while (more && n < most) {
    more = kw_lease_read_next_id(a->read, &ids[n]);
    n += more;
  }
  work->left -= (int64_t)n;
  kw_leases_response page = {.leases = {ids, n}};
  if (ids == NULL || !add_message(a, &kw_msg_lease_leases_response, &page))
    return KW_ERR_TOO_MANY_REQUESTS;
  return more ? KW_UNFINISHED : KW_OK;
}

/* Begins the message when the list is complete. */
static int begin(kw_server *server, lease_answer *a) {
  a->is_listed = true;
  if (!kw_stream_has_room(a->base.stream, kw_lease_read_held(a->read)))
    return KW_ERR_TOO_MANY_REQUESTS;
  if (!kw_long_answer_begin(server, &a->base, kw_store_applied(server->store)))
    return KW_ERR_NO_MEMORY;
  bool ok = a->lease.id == 0 || add_message(a, &kw_msg_lease_time_to_live_response, &a->lease);
  return ok ? KW_OK : KW_ERR_TOO_MANY_REQUESTS;
}

static int make_page(kw_server *server, lease_answer *a, kw_work *work) {
  int rc = a->is_listed ? KW_OK : kw_lease_read_step(server->store, a->read, work);
  bool is_allowed = kw_long_answer_charge(&a->base, sizeof *a + kw_lease_read_held(a->read));
  if (rc >= 0 && !is_allowed) return KW_ERR_TOO_MANY_REQUESTS;
  if (rc == KW_OK && !a->is_listed) rc = begin(server, a);
  if (rc != KW_OK || !kw_work_is_left(work)) return rc == KW_OK ? KW_UNFINISHED : rc;
  return a->lease.id == 0 ? add_leases(server, a, work) : add_keys(server, a, work);
}

/* }====== */

static void answer_none(kw_server *server, lease_answer *a) {
  kw_stream *stream = a->base.stream;
  kw_lease_message none = {.id = a->lease.id, .ttl = -1};
  free_answer(a);
  kw_service_answer(server, stream, kw_store_applied(server->store),
                    &kw_msg_lease_time_to_live_response, &none);
}

static void step(kw_server *server, kw_long_answer *base, kw_work *work) {
  lease_answer *a = KW_CONTAINER_OF(base, lease_answer, base);
  int rc = make_page(server, a, work);
  if (rc == KW_ERR_LEASE_NOT_FOUND) {
    answer_none(server, a);
  } else if (rc == KW_OK) {
    kw_long_answer done = a->base;
    uint64_t ticket = kw_lease_read_ticket(a->read);
    free_answer(a);
    kw_long_answer_send(server, &done, ticket);
  } else if (rc != KW_UNFINISHED) {
    fail(a, rc);
  }
}

/* Begins an answer with the list of `read`, and takes over `read`. NULL: memory is short, and the call fails. */
static void answer(kw_server *server, kw_stream *stream, kw_lease_read *read,
                   const kw_lease_message *lease) {
  lease_answer *a = read == NULL ? NULL : kw_alloc_zeroed(sizeof *a);
  if (a == NULL) {
    if (read != NULL) kw_lease_read_free(read);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  a->base = (kw_long_answer){.stream = stream, .step = step};
  a->read = read;
  a->lease = *lease;
  stream->owner = a;
  kw_link_init(&a->base.link);
  kw_link_add(&server->long_answers, &a->base.link);
  if (kw_work_is_left(&server->reads)) step(server, &a->base, &server->reads);
}

void kw_lease_answer_leases(kw_server *server, kw_stream *stream) {
  answer(server, stream, kw_lease_read_new(), &(kw_lease_message){0});
}

void kw_lease_answer_keys(kw_server *server, kw_stream *stream, const kw_lease_info *info) {
  kw_lease_message lease = {.id = info->id, .ttl = info->ttl, .granted_ttl = info->granted_ttl};
  answer(server, stream, kw_lease_read_new_keys(server->store, info->id), &lease);
}

void kw_lease_answer_close(kw_server *server, kw_stream *stream) {
  (void)server;
  if (stream->owner != NULL) free_answer(stream->owner);
}
