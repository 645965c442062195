/* SPDX-License-Identifier: MIT
 *
 * txn: evaluates operations against the applied state, as parts of the open write, and revokes leases. An evaluation
 * may stop when the work of a turn is used up, and continue in a later turn, if no other write comes in between. An
 * evaluation at a revision only reads, and then anything may come in between. For the files of this folder only.
 */
#ifndef KW_STORE_TXN_H
#define KW_STORE_TXN_H

#include "store/read.h"
#include "store/state.h"
#include "store/work.h"

typedef struct kw_txn_item kw_txn_item;

/* An operation on the way through a transaction. */
struct kw_txn_item {
  const kw_op *op;
  kw_reply *reply;
  kw_txn_item *next;
  bool is_end; /* of a nested transaction: all its operations have run */
};

typedef enum kw_txn_phase {
  KW_TXN_FIND_WAY,
  KW_TXN_RUN,
  KW_TXN_LIST_KEYS, /* of a lease that is revoked */
  KW_TXN_DELETE     /* these keys, in their order; then revokes the lease */
} kw_txn_phase;

/* An evaluation. The arena and the op outlive it. Each record of the reply is given to on_record. Without that function
 * the reply has the borrowed records, which is good for an evaluation of one turn. */
typedef struct kw_txn {
  kw_txn_phase phase;
  kw_arena *arena;
  size_t limit;     /* memory that the records of the reply may take, in bytes */
  size_t bytes;     /* of the records up to now */
  int64_t revision; /* that is read at; 0: the operations see the applied state, and may write */

  kw_on_record on_record; /* or NULL */
  void *ctx;              /* of on_record */

  kw_txn_item first;
  kw_txn_item *at;

  /* The compares of a transaction, and the keys of a compare or a delete that has begun. */
  size_t n_held; /* compares that hold */
  bool is_inside;
  bool is_empty; /* no key of the compare exists */
  kw_index_cursor cursor;
  bool is_reading; /* the range has begun */

  kw_lease *lease;  /* to be revoked */
  size_t n_deleted; /* of its keys */

  /* Set only if they are needed: most writes are short. */
  kw_read read;       /* of a range or a compare, if it is_reading */
  kw_arena pages;     /* of a read: arrays of one turn, unless the records are borrowed */
  kw_lease_list list; /* of the keys of a lease, from KW_TXN_LIST_KEYS on */
} kw_txn;

/* Begins to evaluate an op other than a plain range, that kw_check_op has found well-formed. With a revision other than
 * 0 it is read at that one: none of the operations that come to run may write. */
void kw_txn_begin(kw_txn *txn, const kw_op *op, int64_t revision, size_t limit, kw_arena *arena,
                  kw_reply *reply);

/* Begins to revoke a lease: deletes its keys, in the order of keys. */
void kw_txn_begin_revoke(kw_txn *txn, kw_lease *lease);

/* Continues. Returns KW_OK if the evaluation is done; KW_UNFINISHED if the work is used up; KW_ONLY_READS, of an
 * evaluation of the applied state, if the work is used up and what is to come only reads: then it may be dropped, and
 * begun again at the revision of that state; or KW_ERR_LEASE_NOT_FOUND,
 * KW_ERR_KEY_NOT_FOUND, KW_ERR_COMPACTED, KW_ERR_FUTURE_REVISION, KW_ERR_TOO_MANY_REQUESTS if the records of the reply
 * are beyond the limit, or KW_ERR_NO_MEMORY: then the caller rolls the open write back. The caller looks at
 * kw_log_failure: a record that could not be read counted as empty. */
int kw_txn_run(kw_store *store, kw_txn *txn, kw_work *work);

/* Ends an evaluation. */
void kw_txn_drop(kw_txn *txn);

#endif
