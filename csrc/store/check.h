/* SPDX-License-Identifier: MIT
 *
 * check: is a request well-formed, whatever the store holds? For the files of this folder only.
 */
#ifndef KW_STORE_CHECK_H
#define KW_STORE_CHECK_H

#include "base/arena.h"
#include "model/op.h"

/* What the request itself has wrong: empty keys, too many operations, a key written twice in one
 * transaction, contradicting options. KW_OK, or the error. */
int kw_check_op(const kw_op *op, int64_t max_txn_ops, kw_arena *arena);

/* Whether the op could write: it has a put, a delete or a nested transaction. */
bool kw_check_is_write(const kw_op *op);

/* True if the op, encoded as the message of its request, is larger than `bytes`. */
bool kw_check_exceeds(const kw_op *op, int64_t bytes);

/* What the quota counts for it: 0 if it has no put. */
int64_t kw_check_cost(const kw_op *op);

#endif
