/* SPDX-License-Identifier: MIT
 *
 * kv_service: etcdserverpb.KV.
 *
 * A write is applied, then its answer is made, then it is committed. If the answer cannot be made, the write is rolled
 * back. The records of a long write are encoded while they are read, in several turns, and its answer is made of these
 * parts.
 */
#include "base/mem.h"
#include "codec/wire.h"
#include "model/error.h"
#include "rpc/range_answer.h"
#include "rpc/service.h"
#include "rpc/write_answer.h"
#include "rpc/write_queue.h"

#define SPLICED (64 * 1024) /* bytes above which a range answer references the records */

static const kw_message *const response_messages[] = {[KW_OP_RANGE] = &kw_msg_range_response,
                                                      [KW_OP_PUT] = &kw_msg_put_response,
                                                      [KW_OP_DELETE] =
                                                          &kw_msg_delete_range_response,
                                                      [KW_OP_TXN] = &kw_msg_txn_response};

/* Begins an answer that is added in parts: `rest` bytes follow its header. Returns false if memory is short. */
static bool begin_parts(kw_server *server, kw_stream *stream, int64_t revision, size_t rest) {
  size_t head = kw_service_header_size(server, revision);
  kw_chain *out = &stream->out;
  if (!kw_stream_begin_parts(stream, head + rest)) return false;
  uint8_t *to = kw_chain_reserve(out, head);
  if (to == NULL) return false;
  kw_service_put_header(server, revision, to);
  kw_chain_commit(out, head);
  return true;
}

/* Answers a large range. The records are not copied, but retained until they have been written. */
static bool splice(kw_server *server, kw_stream *stream, const kw_reply *reply, size_t rest) {
  kw_chain *out = &stream->out;
  if (!begin_parts(server, stream, reply->revision, rest)) return false;
  if (!kw_range_answer_add(server, out, &reply->range.kvs, false)) return false;
  if (!kw_range_answer_add_end(out, reply->range.more, reply->range.count)) return false;
  kw_stream_sent(stream);
  kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
  return true;
}

/* Rolls back an op because too many answers are waiting. A range is deferred until fewer are waiting; any other op
 * fails. */
static void put_off(kw_server *server, kw_stream *stream, const kw_op *op) {
  kw_store_rollback(server->store);
  if (op->kind == KW_OP_RANGE) {
    kw_range_answer_defer(server, stream, &op->range);
  } else {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
  }
}

/* Commits an op that was applied, and answers it. Rolls it back if it cannot be answered. */
static void answer(kw_server *server, kw_stream *stream, const kw_op *op, const kw_reply *reply) {
  kw_answer_room room;
  const kw_message *message = response_messages[reply->kind];
  size_t rest = kw_message_rest_size(message, reply);
  size_t len = kw_service_header_size(server, reply->revision) + rest;
  bool is_spliced = reply->kind == KW_OP_RANGE && rest > SPLICED && !reply->range.keys_only;
  size_t held = is_spliced ? kw_range_answer_size(server, &reply->range.kvs) : len;
  if (len > KW_MAX_ANSWER) {
    kw_store_rollback(server->store);
    kw_service_refuse_size(stream, len);
  } else if (!kw_account_ask(kw_session_account(stream->session), held)) {
    kw_store_rollback(server->store);
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
  } else if (!kw_stream_has_room(stream, len)) {
    put_off(server, stream, op);
  } else if (is_spliced) {
    if (!splice(server, stream, reply, rest)) kw_stream_reset(stream, KW_RESET_INTERNAL);
  } else if (kw_service_begin(server, stream, reply->revision, rest, &room)) {
    kw_message_put_rest(message, reply, room.to);
    kw_store_commit(server->store);
    if (kw_store_only_reads(op)) {
      kw_service_send(&room);
    } else {
      kw_service_send_durable(server, &room);
    }
  } else {
    kw_store_rollback(server->store);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
  }
}

/* Counts a refusal in the budget: the connection needed more memory than its account may hold. */
static void refuse_memory(kw_stream *stream) {
  kw_account *account = kw_session_account(stream->session);
  size_t room = kw_account_room(account);
  if (room < SIZE_MAX) kw_account_ask(account, room + 1);
}

/* Answers an op whose evaluation has ended with `rc`. */
static void finish(kw_server *server, kw_stream *stream, const kw_op *op, const kw_reply *reply,
                   int rc) {
  if (rc == KW_ERR_TOO_MANY_REQUESTS) refuse_memory(stream);
  if (rc == KW_OK) {
    answer(server, stream, op, reply);
  } else if (kw_store_only_reads(op)) {
    kw_service_fail(stream, rc);
  } else {
    kw_service_fail_durable(server, stream, rc);
  }
}

/* Makes the answer of a long write. It waits in the stream until the write is committed. */
static int make_long(kw_server *server, kw_stream *stream, kw_write_result *result) {
  kw_reply *reply = &result->reply;
  size_t rest = kw_write_answer_measure(reply);
  size_t len = kw_service_header_size(server, reply->revision) + rest;
  if (len > KW_MAX_ANSWER) result->too_large = len;
  if (len > KW_MAX_ANSWER || !kw_stream_has_room(stream, len)) return KW_ERR_TOO_MANY_REQUESTS;
  if (begin_parts(server, stream, reply->revision, rest) &&
      kw_write_answer_add(&stream->out, reply))
    return KW_OK;
  kw_stream_forget(stream);
  return KW_ERR_NO_MEMORY;
}

static void finish_long(kw_server *server, kw_stream *stream, const kw_write_result *result,
                        int rc) {
  if (rc == KW_OK) {
    if (!result->has_read) kw_store_commit(server->store);
    kw_service_send_parts(server, stream,
                          result->has_read ? result->ticket : kw_store_ticket(server->store));
  } else if (result->too_large > 0) {
    kw_service_refuse_size(stream, result->too_large);
  } else {
    finish(server, stream, &result->op, &result->reply, rc);
  }
}

/* Applies an op and answers it. An op that takes more than a turn becomes a long write or a long read. */
static void apply(kw_server *server, kw_stream *stream, const kw_op *op) {
  kw_reply reply;
  size_t limit = op->kind == KW_OP_PUT ? SIZE_MAX : kw_write_queue_limit(stream);
  kw_work *work = kw_store_only_reads(op) ? &server->reads : &server->work;
  int rc = kw_store_apply_within(server->store, op, limit, work, &server->arena, &reply);
  if (rc == KW_UNFINISHED) {
    kw_write_queue_begin(server, stream, op->kind, make_long, finish_long);
  } else if (rc == KW_ONLY_READS) {
    kw_write_queue_begin_read(server, stream, make_long, finish_long);
  } else {
    finish(server, stream, op, &reply, rc);
  }
}

/* Answers a range: at once if it is short, else page by page. */
static void range(kw_server *server, kw_stream *stream, const kw_range_op *asked) {
  kw_op op = {.kind = KW_OP_RANGE, .range = *asked};
  kw_reply reply = {.kind = KW_OP_RANGE, .revision = kw_store_revision(server->store)};
  kw_work work = server->reads;
  kw_read read;
  if (kw_range_is_point(&asked->range)) {
    apply(server, stream, &op);
    return;
  }
  int rc = kw_read_begin(server->store, &read, asked, &server->arena);
  if (rc != KW_OK) {
    kw_service_fail(stream, rc);
    return;
  }
  if (work.left > KW_PAGE_VISITS) work.left = KW_PAGE_VISITS;
  server->reads.left -= work.left;
  rc = kw_read_step(server->store, &read, &server->arena, &work, &reply.range.kvs);
  server->reads.left += work.left;
  if (rc == KW_UNFINISHED) {
    kw_range_answer_begin(server, stream, &read, reply.revision, &reply.range.kvs);
    return;
  }
  reply.range.count = read.count;
  reply.range.more = read.more;
  reply.range.keys_only = asked->keys_only;
  kw_read_drop(&read);
  if (rc == KW_OK) {
    answer(server, stream, &op, &reply);
  } else {
    kw_service_fail(stream, rc);
  }
}

static void on_range(kw_server *server, kw_stream *stream, const void *request) {
  range(server, stream, request);
}

static void on_range_room(kw_server *server, kw_stream *stream) {
  kw_arena_reset(&server->arena);
  kw_range_answer_resume(server, stream, range);
  kw_server_touch(stream);
}

/* Returns why the op cannot be answered with a range stream, in etcd's words; or NULL if it can. */
static const char *not_streamed(const kw_range_op *op) {
  bool is_default = op->sort_order == KW_SORT_NONE ||
                    (op->sort_order == KW_SORT_ASCEND && op->sort_target == KW_SORT_KEY);
  if (!is_default) return "RangeStream does not support custom sort orders";
  return kw_read_is_filtered(op) ? "RangeStream does not support revision filters" : NULL;
}

static void on_range_stream(kw_server *server, kw_stream *stream, const void *request) {
  kw_range_op op = *(const kw_range_op *)request;
  const char *why = not_streamed(&op);
  kw_read read = {0};
  if (why == NULL) op.sort_target = KW_SORT_KEY; /* ignored without an order */
  int rc = kw_read_begin(server->store, &read, &op, &server->arena);
  if (why != NULL && rc != KW_ERR_EMPTY_KEY && rc != KW_ERR_INVALID_SORT) {
    kw_read_drop(&read);
    kw_stream_finish(stream, KW_GRPC_UNIMPLEMENTED, kw_slice_of(why, strlen(why)));
  } else if (rc != KW_OK) {
    kw_service_fail(stream, rc);
  } else {
    kw_range_answer_stream(server, stream, &read, kw_store_revision(server->store));
  }
}

static void on_put(kw_server *server, kw_stream *stream, const void *request) {
  apply(server, stream, &(kw_op){.kind = KW_OP_PUT, .put = *(const kw_put_op *)request});
}

static void on_delete(kw_server *server, kw_stream *stream, const void *request) {
  apply(server, stream, &(kw_op){.kind = KW_OP_DELETE, .delete = *(const kw_delete_op *)request});
}

static bool txn_only_reads(const void *request) {
  return kw_store_only_reads(&(kw_op){.kind = KW_OP_TXN, .txn = *(const kw_txn_op *)request});
}

static void on_txn(kw_server *server, kw_stream *stream, const void *request) {
  apply(server, stream, &(kw_op){.kind = KW_OP_TXN, .txn = *(const kw_txn_op *)request});
}

/* {====== Compaction ====== */

static void finish_compaction(kw_server *server, kw_stream *stream, int rc) {
  if (rc == KW_OK) {
    kw_service_answer(server, stream, kw_store_revision(server->store), &kw_msg_compaction_response,
                      NULL);
  } else {
    kw_service_fail_durable(server, stream, rc);
  }
}

/* A call with `physical` is answered when no compaction is running, neither its own nor an earlier one. */
static void on_compact(kw_server *server, kw_stream *stream, const void *request) {
  const kw_compaction_request *asked = request;
  size_t n = server->n_compactions;
  bool can_wait = asked->physical && kw_reserve(&server->compactions, &server->cap_compactions,
                                                n + 1, sizeof *server->compactions);
  if (asked->physical && !can_wait) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return;
  }
  if (!kw_service_make_room(stream)) return;
  int rc = kw_store_compact(server->store, asked->revision);
  if (can_wait && kw_store_is_compacting(server->store)) {
    stream->failure = rc;
    stream->ticket = kw_store_ticket(server->store);
    server->compactions[server->n_compactions++] = stream;
  } else {
    finish_compaction(server, stream, rc);
  }
}

/* True if a call waits for a physical compaction that has become durable. */
static bool has_compacted(const kw_server *server) {
  for (size_t i = 0; i < server->n_compactions; i++) {
    if (kw_store_outcome(server->store, server->compactions[i]->ticket) >= 0) return true;
  }
  return false;
}

/* Answers the calls of physical compactions that have ended. kw_store_include_background makes the answers wait until
 * the writes of the compaction are durable, too; kw_store_checkpoint makes them wait until the space of the removed
 * records is free. If the store has failed, neither happens. */
static void answer_compactions(kw_server *server) {
  if (server->n_compactions == 0 || kw_store_is_compacting(server->store)) return;
  kw_store_include_background(server->store);
  int failure = has_compacted(server) ? kw_store_checkpoint(server->store) : KW_OK;
  while (server->n_compactions > 0) {
    kw_stream *stream = server->compactions[--server->n_compactions];
    int rc = kw_store_outcome(server->store, stream->ticket);
    if (rc >= 0) rc = failure;
    finish_compaction(server, stream, rc < 0 ? rc : stream->failure);
    kw_server_touch(stream);
  }
}

bool kw_kv_step(kw_server *server) {
  kw_long_answer_step(server);
  server->reads = kw_work_of_turn();
  bool more = kw_write_queue_step(server);
  answer_compactions(server);
  return more || !kw_link_is_alone(&server->long_answers);
}

static void on_compact_close(kw_server *server, kw_stream *stream) {
  kw_write_queue_close(server, stream);
  for (size_t i = 0; i < server->n_compactions; i++) {
    if (server->compactions[i] != stream) continue;
    server->compactions[i] = server->compactions[--server->n_compactions];
    return;
  }
}

/* }====== */

const kw_method kw_kv_methods[] = {
    {.path = "/etcdserverpb.KV/Range",
     .request = &kw_msg_range_request,
     .is_unary = true,
     .on_request = on_range,
     .on_room = on_range_room,
     .on_timeout = kw_service_abandon,
     .on_close = kw_range_answer_close},
    {.path = "/etcdserverpb.KV/RangeStream",
     .request = &kw_msg_range_request,
     .takes_one = true,
     .on_request = on_range_stream,
     .on_pull = kw_range_answer_pull,
     .on_timeout = kw_range_answer_close,
     .on_close = kw_range_answer_close},
    KW_WAITING_METHOD("/etcdserverpb.KV/Put", put_request, on_put),
    KW_WAITING_METHOD("/etcdserverpb.KV/DeleteRange", delete_range_request, on_delete),
    {.path = "/etcdserverpb.KV/Txn",
     .request = &kw_msg_txn_request,
     .is_unary = true,
     .waits = true,
     .only_reads = txn_only_reads,
     .on_request = on_txn,
     .on_timeout = kw_service_abandon,
     .on_close = kw_write_queue_close},
    {.path = "/etcdserverpb.KV/Compact",
     .request = &kw_msg_compaction_request,
     .is_unary = true,
     .waits = true,
     .on_request = on_compact,
     .on_timeout = kw_service_abandon,
     .on_close = on_compact_close},
    {0},
};
