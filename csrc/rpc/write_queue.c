/* SPDX-License-Identifier: MIT */
#include "rpc/write_queue.h"

#include "base/mem.h"
#include "base/process.h"
#include "model/error.h"
#include "rpc/long_answer.h"
#include "rpc/method.h"
#include "rpc/write_answer.h"
#include "store/long_read.h"

struct kw_write_job {
  kw_link link; /* in the server's queue of waiting requests; a long write is in no list */
  kw_server *server;
  kw_stream *stream; /* NULL: the stream is closed */
  uint64_t number;   /* of a waiting request, see kw_store_take_number */
  kw_blob *message;
  size_t charged;       /* to the connection's account */
  size_t limit;         /* memory that the records of the reply may take */
  kw_account account;   /* memory of these records */
  kw_write_ready ready; /* or NULL */
  kw_write_finish finish;
  kw_long_answer answer; /* of a transaction that only reads */
  kw_long_read *read;    /* or NULL */
  kw_arena arena;        /* the decoded request, and the memory of its evaluation */
  kw_write_result result;
};

/* Charges the memory of a job: the request, and the records of the reply. */
static void charge(kw_write_job *job) {
  kw_account *account = kw_session_account(job->stream->session);
  size_t size = sizeof *job + job->message->len + job->account.held;
  kw_account_resize(account, job->charged, size);
  job->charged = size;
}

static void free_job(kw_write_job *job) {
  kw_link_remove(&job->link);
  kw_link_remove(&job->answer.link);
  if (job->read != NULL) kw_long_read_free(job->read);
  kw_blob_release(job->message);
  kw_arena_drop(&job->arena);
  kw_free(job);
}

/* The records of the reply are freed in several turns. */
static void drop_reply(kw_write_job *job) {
  kw_write_answer_discard(&job->result.reply, &job->server->discarded);
  job->result.reply = (kw_reply){0};
}

/* Detaches a job from its stream. From now on records are dropped. */
static void leave(kw_write_job *job) {
  if (job->stream == NULL) return;
  drop_reply(job);
  kw_account_credit(kw_session_account(job->stream->session), job->charged);
  job->stream->owner = NULL;
  job->stream = NULL;
}

/* Makes the job of a request. Returns NULL if the call has failed. */
static kw_write_job *new_job(kw_server *server, kw_stream *stream, kw_slice message) {
  kw_account *account = kw_session_account(stream->session);
  if (!kw_account_ask(account, sizeof(kw_write_job) + message.len)) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return NULL;
  }
  kw_write_job *job = kw_alloc_zeroed(sizeof *job);
  kw_blob *copy = job == NULL ? NULL : kw_blob_copy(message);
  if (copy == NULL) {
    kw_free(job);
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return NULL;
  }
  kw_link_init(&job->link);
  kw_link_init(&job->answer.link);
  job->server = server;
  job->stream = stream;
  job->message = copy;
  stream->owner = job;
  charge(job);
  return job;
}

/* {====== Waiting ====== */

bool kw_write_queue_must_wait(const kw_server *server) {
  return kw_store_is_busy(server->store) || !kw_link_is_alone(&server->writes) ||
         kw_store_has_task_before(server->store, UINT64_MAX);
}

void kw_write_queue_add(kw_server *server, kw_stream *stream, kw_slice message) {
  kw_write_job *job = new_job(server, stream, message);
  if (job == NULL) return;
  job->number = kw_store_take_number(server->store);
  kw_link_add(&server->writes, &job->link);
}

/* Returns the oldest waiting request, or NULL. */
static kw_write_job *first_job(const kw_server *server) {
  if (kw_link_is_alone(&server->writes)) return NULL;
  return KW_CONTAINER_OF(server->writes.next, kw_write_job, link);
}

uint64_t kw_server_first_request(const kw_server *server) {
  const kw_write_job *job = kw_process_is(server->pid) ? first_job(server) : NULL;
  return job == NULL ? 0 : job->number;
}

/* The stream may have been reset, but is not closed: a closed stream has left the queue. */
static void deliver(kw_server *server, kw_write_job *job) {
  kw_stream *stream = job->stream;
  leave(job);
  kw_method_deliver(server, stream, kw_blob_slice(job->message), false);
  free_job(job);
  kw_server_touch(stream);
}

bool kw_write_queue_step(kw_server *server) {
  const kw_store *store = server->store;
  kw_write_job *job, *under_way = server->long_write;
  if (under_way != NULL && under_way->stream != NULL) charge(under_way);
  server->work = kw_work_of_turn();
  while ((job = first_job(server)) != NULL && !kw_store_is_busy(store)) {
    if (!kw_work_is_left(&server->work)) return true;
    if (kw_store_has_task_before(store, job->number)) return true;
    kw_link_remove(&job->link);
    kw_work_spend(&server->work, job->message->len);
    deliver(server, job);
  }
  return kw_store_is_busy(store);
}

/* }====== */

size_t kw_write_queue_limit(const kw_stream *stream) {
  return kw_account_room(kw_session_account(stream->session));
}

/* Encodes a record now: a record that a write replaces leaves the store, and records of a database are copies. */
static int on_record(kw_reply *reply, const kw_op *op, const kw_blob *record, void *ctx) {
  kw_write_job *job = ctx;
  if (job->stream == NULL) return KW_OK;
  bool is_own = op->kind != KW_OP_RANGE || kw_store_is_durable(job->server->store);
  if (reply->encoded == NULL) reply->encoded = kw_arena_alloc(&job->arena, sizeof(kw_chain));
  if (reply->encoded == NULL) return KW_ERR_NO_MEMORY;
  reply->encoded->account = &job->account;
  if (!kw_write_answer_encode(reply->encoded, op, record, is_own)) return KW_ERR_NO_MEMORY;
  return job->account.held <= job->limit ? KW_OK : KW_ERR_TOO_MANY_REQUESTS;
}

static int make_ready(kw_write_job *job) {
  if (job->stream == NULL || job->ready == NULL) return KW_OK;
  return job->ready(job->server, job->stream, &job->result);
}

/* {====== Long reads ====== */

/* Delivers the request of a read again, because its revision no longer exists. */
static void repeat(kw_server *server, kw_write_job *job) {
  kw_stream *stream = job->stream;
  leave(job);
  kw_slice message = kw_blob_slice(job->message);
  if (kw_method_deliver(server, stream, message, kw_write_queue_must_wait(server)))
    kw_write_queue_add(server, stream, message);
  free_job(job);
}

static void step_read(kw_server *server, kw_long_answer *answer, kw_work *work) {
  kw_write_job *job = KW_CONTAINER_OF(answer, kw_write_job, answer);
  kw_stream *stream = job->stream;
  int rc = kw_long_read_step(server->store, job->read, work);
  if (rc == KW_UNFINISHED) {
    charge(job);
  } else if (rc == KW_STALE) {
    repeat(server, job);
  } else {
    if (rc == KW_OK) rc = make_ready(job);
    leave(job);
    job->finish(server, stream, &job->result, rc);
    free_job(job);
  }
}

/* Begins to read for a job, whose op is decoded. Returns KW_OK or KW_ERR_NO_MEMORY. */
static int begin_read(kw_write_job *job) {
  kw_stream *stream = job->stream;
  kw_write_result *result = &job->result;
  drop_reply(job); /* the write has become a read */
  job->limit = kw_write_queue_limit(stream);
  job->read = kw_long_read_new(job->server->store, &result->op, job->limit, on_record, job,
                               &job->arena, &result->reply);
  if (job->read == NULL) return KW_ERR_NO_MEMORY;
  result->has_read = true;
  result->ticket = kw_long_read_ticket(job->read);
  job->answer.stream = stream;
  job->answer.step = step_read;
  kw_link_add(&job->server->long_answers, &job->answer.link);
  return KW_OK;
}

/* }====== */

/* {====== Long writes ====== */

/* Frees the job, unless the write has become a read, which needs it. */
static void on_free(void *ctx) {
  kw_write_job *job = ctx;
  if (job->read == NULL) free_job(job);
}

static int on_ready(void *ctx) {
  return make_ready(ctx);
}

static void on_end(int rc, void *ctx) {
  kw_write_job *job = ctx;
  kw_stream *stream = job->stream;
  kw_server *server = job->server;
  server->long_write = NULL;
  if (rc == KW_ONLY_READS && stream != NULL) {
    rc = begin_read(job);
    if (rc == KW_OK) return;
  }
  leave(job);
  if (stream != NULL) {
    job->finish(server, stream, &job->result, rc);
    kw_server_touch(stream);
  } else if (rc == KW_OK) {
    kw_store_commit(server->store);
  }
}

static kw_write_owner owner_of(kw_write_job *job) {
  return (kw_write_owner){.on_record = on_record,
                          .on_ready = on_ready,
                          .on_end = on_end,
                          .on_free = on_free,
                          .ctx = job};
}

static int decode(kw_write_job *job, kw_op_kind kind) {
  const kw_method *method = job->stream->method;
  void *request = kw_arena_alloc(&job->arena, method->request->size);
  if (request == NULL) return KW_ERR_NO_MEMORY;
  int rc = kw_message_decode(method->request, kw_blob_slice(job->message), &job->arena, request);
  kw_op *op = &job->result.op;
  op->kind = kind;
  switch (kind) {
    case KW_OP_PUT: op->put = *(const kw_put_op *)request; break;
    case KW_OP_DELETE: op->delete = *(const kw_delete_op *)request; break;
    case KW_OP_TXN: op->txn = *(const kw_txn_op *)request; break;
    case KW_OP_RANGE:
    case KW_OP_NONE: break; /* no such jobs */
  }
  return rc;
}

/* Sets server->long_write to a long write that has begun; a read is in the list of long answers already. If it could
 * not begin, ends its call. */
static void begun(kw_server *server, kw_write_job *job, int rc) {
  if (rc == KW_OK) {
    if (job->read == NULL) server->long_write = job;
    return;
  }
  kw_stream *stream = job->stream;
  leave(job);
  free_job(job);
  kw_service_fail_durable(server, stream, rc);
}

/* Makes the job of a long write. Returns NULL if the call has failed. */
static kw_write_job *new_long_write(kw_server *server, kw_stream *stream, kw_write_finish finish) {
  kw_write_job *job = new_job(server, stream, server->message);
  if (job != NULL) job->finish = finish;
  return job;
}

void kw_write_queue_begin(kw_server *server, kw_stream *stream, kw_op_kind kind,
                          kw_write_ready ready, kw_write_finish finish) {
  kw_write_job *job = new_long_write(server, stream, finish);
  if (job == NULL) return;
  job->ready = ready;
  int rc = decode(job, kind);
  job->limit = kw_write_queue_limit(stream);
  if (rc == KW_OK)
    rc = kw_store_begin(server->store, &job->result.op, job->limit, &job->arena, &job->result.reply,
                        owner_of(job));
  begun(server, job, rc);
}

void kw_write_queue_begin_revoke(kw_server *server, kw_stream *stream, int64_t id,
                                 kw_write_finish finish) {
  kw_write_job *job = new_long_write(server, stream, finish);
  if (job != NULL) begun(server, job, kw_store_begin_revoke(server->store, id, owner_of(job)));
}

void kw_write_queue_begin_read(kw_server *server, kw_stream *stream, kw_write_ready ready,
                               kw_write_finish finish) {
  kw_write_job *job = new_long_write(server, stream, finish);
  if (job == NULL) return;
  job->ready = ready;
  int rc = decode(job, KW_OP_TXN);
  begun(server, job, rc == KW_OK ? begin_read(job) : rc);
}

void kw_write_queue_finish(kw_server *server) {
  if (server->long_write == NULL || kw_store_is_inherited(server->store)) return;
  kw_store_finish(server->store);
}

/* }====== */

void kw_write_queue_close(kw_server *server, kw_stream *stream) {
  kw_write_job *job = stream->owner;
  if (job == NULL) return;
  leave(job);
  if (server->long_write != job) free_job(job);
}
