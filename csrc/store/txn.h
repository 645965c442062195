/* SPDX-License-Identifier: MIT
 *
 * txn: evaluates operations against the state, as parts of the open write, and revokes and lists leases. An evaluation
 * may stop when the work of a turn is used up, and go on in a later turn, if no other write comes in between. For the
 * files of this folder only.
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
  kw_chain encoded; /* records of the reply, as fields of its message */
  bool is_end;      /* of a nested transaction: all its operations have run */
  bool is_retained; /* the evaluation has references to the records of the reply */
};

typedef enum kw_txn_phase {
  KW_TXN_FIND_WAY,
  KW_TXN_RUN,
  KW_TXN_LIST_LEASES,
  KW_TXN_LIST_KEYS, /* of a lease */
  KW_TXN_DELETE     /* the keys of a lease, in their order; then revokes the lease */
} kw_txn_phase;

/* An evaluation. The arena and the op outlive it. The records of the reply are borrowed, which is good until the turn
 * ends; or, for an evaluation that takes several turns, they are encoded at once, or retained. */
typedef struct kw_txn {
  kw_txn_phase phase;
  kw_arena *arena;
  size_t limit; /* memory that the records of the reply may take, in bytes */
  size_t bytes; /* of the records up to now */

  kw_reply_records records; /* those that are retained are given away by kw_txn_give */
  bool is_abandoned;        /* nobody wants the reply: its records are counted and dropped */
  kw_account account;       /* memory of all chains */
  kw_chain discarded;       /* records of a reply that nobody wants, to be freed */

  kw_txn_item first;
  kw_txn_item *at;

  /* The compares of a transaction, and the keys of a compare or a delete that has begun. */
  size_t n_held; /* compares that hold */
  bool is_inside;
  bool is_empty; /* no key of the compare exists */
  kw_index_cursor cursor;
  bool is_reading; /* the range has begun */
  size_t cap_kvs;  /* records that its reply has room for */

  kw_lease *lease;     /* to be revoked, or whose keys are listed */
  size_t n_deleted;    /* keys of the list */
  kw_lease_info *info; /* gets the list of keys; NULL: the lease is revoked */
  kw_lease_ids *ids;   /* get the list of leases */

  /* Set only if they are needed: most writes are short. */
  kw_read read;       /* of a range, if it is_reading */
  kw_arena pages;     /* of a range: arrays of one turn, if the records are encoded */
  kw_lease_list list; /* of the keys of a lease, or of all leases, from KW_TXN_LIST_LEASES on */
} kw_txn;

/* Begins to evaluate an op other than a plain range, that kw_check_op has found well-formed. */
void kw_txn_begin(kw_txn *txn, const kw_op *op, size_t limit, kw_arena *arena, kw_reply *reply);

/* Begins to revoke a lease: deletes its keys, in the order of keys. */
void kw_txn_begin_revoke(kw_txn *txn, kw_lease *lease);

/* Begins to list the keys of a lease in the arena. *info gets them at the end. */
void kw_txn_begin_list_keys(kw_txn *txn, kw_lease *lease, kw_arena *arena, kw_lease_info *info);

/* Begins to list all leases in the arena. *ids gets them at the end. */
void kw_txn_begin_list_leases(kw_txn *txn, kw_arena *arena, kw_lease_ids *ids);

/* Goes on. Returns KW_OK if the evaluation is done; KW_UNFINISHED if the work is used up; or KW_ERR_LEASE_NOT_FOUND,
 * KW_ERR_KEY_NOT_FOUND, KW_ERR_COMPACTED, KW_ERR_FUTURE_REVISION, KW_ERR_TOO_MANY_REQUESTS if the records of the reply
 * are beyond the limit, or KW_ERR_NO_MEMORY: then the caller rolls the open write back. The caller looks at
 * kw_log_failure: a record that could not be read counted as empty. */
int kw_txn_run(kw_store *store, kw_txn *txn, kw_work *work);

/* Drops the records of a reply that nobody wants: those that it has, which kw_txn_free_discarded frees, and those to
 * come. */
void kw_txn_abandon(kw_txn *txn);

/* Frees dropped records, as many as the work allows. Returns true if all are freed. */
bool kw_txn_free_discarded(kw_txn *txn, kw_work *work);

/* Gives the references to the retained records of the reply to the caller. */
void kw_txn_give(kw_txn *txn);

/* Ends an evaluation. Frees the encoded records that nobody has taken. */
void kw_txn_drop(kw_txn *txn);

#endif
