/* SPDX-License-Identifier: MIT
 *
 * write_queue: writes that take more than one turn, and the requests that wait for them; and transactions that only
 * read, and take more than one turn. For this folder only.
 *
 * While the store does a long write, a request of a method that `waits` is queued: its message is copied, and charged
 * to the connection's account. When the store is no longer busy, the requests are delivered in the order in which they
 * arrived, a turn's work at a time. A request whose stream closes leaves the queue. A request is not delivered before
 * an earlier write of a task, see kw_store_take_number.
 *
 * A long write stores the message of its request, too, and the answer as far as it is made; the account is charged for
 * both. If its stream closes, the write continues, and is committed without an answer.
 *
 * A transaction that only reads is a long answer, see rpc/long_answer.h. If its revision is compacted before the
 * end, the request is delivered again. If its stream closes, the read ends.
 */
#ifndef KW_RPC_WRITE_QUEUE_H
#define KW_RPC_WRITE_QUEUE_H

#include "rpc/service.h"

/* A request that waits, or a long write. */
typedef struct kw_write_job kw_write_job;

/* The result of a long write. */
typedef struct kw_write_result {
  kw_op op;
  kw_reply reply;   /* to the op */
  size_t too_large; /* size of an answer that is too large to be sent; or 0 */
  bool has_read;    /* a transaction that only reads: there is nothing to commit */
  uint64_t ticket;  /* if has_read: ticket of the revision that was read */
} kw_write_result;

/* Makes the answer of a long write that is evaluated, but not committed. Returns KW_OK; or an error: then the write is
 * rolled back, and `finish` gets the error. */
typedef int (*kw_write_ready)(kw_server *server, kw_stream *stream, kw_write_result *result);

/* Answers a long write that has ended with `rc`, and commits it. After an error it is rolled back already. */
typedef void (*kw_write_finish)(kw_server *server, kw_stream *stream, const kw_write_result *result,
                                int rc);

/* True if a request of a method that waits has to be queued. */
bool kw_write_queue_must_wait(const kw_server *server);

/* Queues a request. The call fails if memory is short, or if the connection's account refuses memory for the
 * message. */
void kw_write_queue_add(kw_server *server, kw_stream *stream, kw_slice message);

/* Begins a long write for the request that is being delivered: an op of this kind, which is evaluated again. The call
 * fails if it cannot begin. `ready` and `finish` are called at the end, unless the stream is closed by then. */
void kw_write_queue_begin(kw_server *server, kw_stream *stream, kw_op_kind kind,
                          kw_write_ready ready, kw_write_finish finish);

/* Like kw_write_queue_begin, for the revocation of a lease. */
void kw_write_queue_begin_revoke(kw_server *server, kw_stream *stream, int64_t id,
                                 kw_write_finish finish);

/* Like kw_write_queue_begin, for a transaction that only reads. */
void kw_write_queue_begin_read(kw_server *server, kw_stream *stream, kw_write_ready ready,
                               kw_write_finish finish);

/* Returns how much memory the records in the answer of a write may take, in bytes. */
size_t kw_write_queue_limit(const kw_stream *stream);

/* Delivers waiting requests, within the work of a turn. Returns true if more requests wait, or the store is busy. */
bool kw_write_queue_step(kw_server *server);

/* The on_close of methods that wait. */
void kw_write_queue_close(kw_server *server, kw_stream *stream);

/* Completes the server's long write, whose stream is closed, in one step. Does nothing if there is none, or in the
 * child after a fork. */
void kw_write_queue_finish(kw_server *server);

#endif
