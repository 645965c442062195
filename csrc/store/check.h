/* SPDX-License-Identifier: MIT
 *
 * check: checks and measures a request by itself, without looking at the store. For the files of this folder only.
 */
#ifndef KW_STORE_CHECK_H
#define KW_STORE_CHECK_H

#include "base/arena.h"
#include "model/op.h"

/* Returns what a transaction may weigh: all its operations and compares, each counted as often as it is deep. So they
 * are no more than this, and work is bounded that walks them at every depth. */
int64_t kw_check_weight(int64_t max_txn_ops);

/* Checks the form of a request. The arena is for memory that the check needs. Returns KW_OK; KW_ERR_EMPTY_KEY;
 * KW_ERR_INVALID_SORT; KW_ERR_VALUE_PROVIDED or KW_ERR_LEASE_PROVIDED for contradicting options of a put;
 * KW_ERR_KEY_NOT_FOUND for an op without a kind; KW_ERR_TOO_MANY_OPS if the longest list of a transaction (compares,
 * success or failure) is too long: `max_txn_ops` is the limit, of which a nested transaction gets what the longest
 * list of its parent leaves; or if a transaction is heavier than kw_check_weight; KW_ERR_DUPLICATE_KEY for a
 * transaction that puts a key twice, or puts a key that it deletes; or KW_ERR_NO_MEMORY. */
int kw_check_op(const kw_op *op, int64_t max_txn_ops, kw_arena *arena);

/* True if the op could write: it is a put or a delete, or a transaction that has a put, a delete or a nested
 * transaction. An op without a kind counts as a write. */
bool kw_check_is_write(const kw_op *op);

/* True if the op, encoded as the message of its request, takes more than `bytes`. */
bool kw_check_exceeds(const kw_op *op, int64_t bytes);

/* Returns the bytes that etcd's quota counts for the op; 0 if the op has no put. A transaction costs as much as the
 * more expensive one of its branches. */
int64_t kw_check_cost(const kw_op *op);

#endif
