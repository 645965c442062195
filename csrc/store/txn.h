/* SPDX-License-Identifier: MIT
 *
 * txn: evaluates operations against the state, as parts of the open write. For the files of this folder only.
 */
#ifndef KW_STORE_TXN_H
#define KW_STORE_TXN_H

#include "store/state.h"

/* Runs an op that kw_check_op has found well-formed. After an error the open write may hold a part of it: the caller
 * rolls it back. */
int kw_txn_run(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply);

/* Deletes every key of a lease, in the order of keys. Returns KW_OK or KW_ERR_NO_MEMORY. */
int kw_txn_delete_lease(kw_store *store, const kw_lease *lease, kw_arena *arena);

#endif
