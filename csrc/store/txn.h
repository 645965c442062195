/* SPDX-License-Identifier: MIT
 *
 * txn: evaluates operations against the state, as parts of the open write. For the files of this folder only.
 */
#ifndef KW_STORE_TXN_H
#define KW_STORE_TXN_H

#include "store/state.h"

/* Runs an op that kw_check_op has found well-formed. A plain range sees the visible state; all other ops see the
 * applied state. Returns KW_OK, KW_ERR_LEASE_NOT_FOUND, KW_ERR_KEY_NOT_FOUND, KW_ERR_COMPACTED,
 * KW_ERR_FUTURE_REVISION or KW_ERR_NO_MEMORY. After an error the open write may hold a part of the op: the caller
 * rolls it back. After KW_OK the caller looks at kw_log_failure: a record that could not be read counted as empty. */
int kw_txn_run(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply);

/* Deletes every key of a lease, in the order of keys, as a part of the open write. The arena is for memory that the
 * call needs. Returns KW_OK, or KW_ERR_NO_MEMORY: then the caller rolls the open write back. */
int kw_txn_delete_lease(kw_store *store, const kw_lease *lease, kw_arena *arena);

#endif
