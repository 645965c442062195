/* SPDX-License-Identifier: MIT
 *
 * txn: evaluates operations against the applied state, as parts of the open write, and revokes leases. An evaluation
 * may stop when the work of a turn is used up, and continue in a later turn, if there was no other write between the
 * turns. An evaluation at a revision only reads, and allows other writes between its turns. For the files of this
 * folder only.
 */
#ifndef KW_STORE_TXN_H
#define KW_STORE_TXN_H

#include "store/read.h"
#include "store/state.h"
#include "store/work.h"

typedef struct kw_txn_item kw_txn_item;

/* An operation on the path through a transaction. */
struct kw_txn_item {
  const kw_op *op;
  kw_reply *reply;
  kw_txn_item *next;
  bool is_end; /* the end of a nested transaction: all its operations have run */
};

typedef enum kw_txn_phase {
  KW_TXN_FIND_PATH, /* evaluates the compares, which choose the operations */
  KW_TXN_RUN,
  KW_TXN_LIST_KEYS, /* lists the keys of a lease that is revoked */
  KW_TXN_DELETE     /* deletes these keys, in order; then revokes the lease */
} kw_txn_phase;

/* An evaluation. The arena and the op must outlive it. Each record of the reply is passed to on_record. Without
 * on_record the reply has the borrowed records, so the evaluation must end within one turn. */
typedef struct kw_txn {
  kw_txn_phase phase;
  kw_arena *arena;
  size_t limit; /* memory that the records of the reply may take, in bytes */
  size_t bytes; /* memory of the records so far */
  /* The operations only read, at this one; 0: they see the applied state, and may write. */
  int64_t revision;

  kw_on_record on_record; /* or NULL */
  void *ctx;              /* of on_record */

  kw_txn_item first;
  kw_txn_item *at;

  size_t n_held;          /* number of compares of the transaction that hold */
  bool is_inside;         /* the compare or the operation at `at` has visited some of its keys */
  bool is_empty;          /* no key of the compare exists */
  kw_index_cursor cursor; /* before the next key of the compare or of the delete */
  bool is_reading;        /* `read` has begun */

  kw_lease *lease;  /* the lease to be revoked */
  size_t n_deleted; /* number of its keys that were deleted */

  /* The fields below are set only if they are needed: most writes are short. */
  kw_read read;       /* of a range or a compare, if it is_reading */
  kw_arena pages;     /* of a read: arrays of one turn, unless the records are borrowed */
  kw_lease_list list; /* of the keys of a lease, from KW_TXN_LIST_KEYS on */
} kw_txn;

/* Begins to evaluate an op that is not a plain range, and for which kw_check_op has returned KW_OK. With a revision
 * other than 0 the op is read at that revision: none of the operations that will run may write. */
void kw_txn_begin(kw_txn *txn, const kw_op *op, int64_t revision, size_t limit, kw_arena *arena,
                  kw_reply *reply);

/* Begins to revoke a lease: deletes its keys, in the order of keys. */
void kw_txn_begin_revoke(kw_txn *txn, kw_lease *lease);

/* Continues the evaluation. Returns KW_OK if it is done; KW_UNFINISHED if the work is used up; KW_ONLY_READS, for an
 * evaluation of the applied state, if the work is used up and the evaluation only reads: then it may be dropped, and
 * begun again at the revision of that state; or KW_ERR_LEASE_NOT_FOUND, KW_ERR_KEY_NOT_FOUND, KW_ERR_COMPACTED,
 * KW_ERR_FUTURE_REVISION, KW_ERR_TOO_MANY_REQUESTS if the records of the reply are beyond the limit, or
 * KW_ERR_NO_MEMORY: then the caller rolls the open write back. The caller checks kw_log_failure: an unreadable record
 * counts as empty. */
int kw_txn_run(kw_store *store, kw_txn *txn, kw_work *work);

/* Ends an evaluation. */
void kw_txn_drop(kw_txn *txn);

#endif
