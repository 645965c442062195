/* SPDX-License-Identifier: MIT
 *
 * long_write: a write that is evaluated in several turns. store.h has the public part. For the files of this folder
 * only.
 *
 * During a long write the store is busy. The open write belongs to the long write: nothing else may change the state,
 * the leases or the commit group, which is not submitted until the end of the write. Plain reads see the visible state.
 */
#ifndef KW_STORE_LONG_WRITE_H
#define KW_STORE_LONG_WRITE_H

#include "store/txn.h"

/* Begins a long write. Returns its evaluation, which the caller starts at once, or NULL if memory is short. */
kw_txn *kw_long_write_begin(kw_store *store, kw_write_owner owner);

/* Frees the long write, if there is one, without a call of on_end. */
void kw_long_write_free(kw_store *store);

#endif
