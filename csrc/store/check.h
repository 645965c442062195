/* SPDX-License-Identifier: MIT
 *
 * check: checks and measures a request without the state of the store. For the files of this folder only.
 */
#ifndef KW_STORE_CHECK_H
#define KW_STORE_CHECK_H

#include "base/arena.h"
#include "model/op.h"

/* Returns the largest weight of a transaction. The weight is the number of all operations and compares, each multiplied
 * by its depth. So the weight limits their number, and also the work of walking them at every depth. */
int64_t kw_check_weight(int64_t max_txn_ops);

/* Checks the form of a request. The arena gives the memory that the check needs. Returns KW_OK; KW_ERR_EMPTY_KEY;
 * KW_ERR_INVALID_SORT; KW_ERR_VALUE_PROVIDED or KW_ERR_LEASE_PROVIDED for contradicting options of a put;
 * KW_ERR_KEY_NOT_FOUND for an op without a kind; KW_ERR_TOO_MANY_OPS if the longest list of a transaction (compares,
 * success or failure) is too long: the limit is `max_txn_ops`, and for a nested transaction the limit of its parent
 * minus the parent's longest list; or if a transaction is heavier than kw_check_weight; KW_ERR_DUPLICATE_KEY for a
 * transaction that puts a key twice, or puts a key that it deletes; or KW_ERR_NO_MEMORY. */
int kw_check_op(const kw_op *op, int64_t max_txn_ops, kw_arena *arena);

/* True if the op could write: it is a put or a delete, or a transaction that has a put, a delete or a nested
 * transaction. An op without a kind counts as a write. */
bool kw_check_is_write(const kw_op *op);

/* True if the op, encoded as a request message, is larger than `bytes`. */
bool kw_check_exceeds(const kw_op *op, int64_t bytes);

/* Returns the bytes that etcd's quota counts for the op; 0 if the op has no put. The cost of a transaction is that of
 * its more expensive branch. */
int64_t kw_check_cost(const kw_op *op);

#endif
