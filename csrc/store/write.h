/* SPDX-License-Identifier: MIT
 *
 * write: one change of one key, in the index, the log and the leases at once; and how it is taken back.
 * For the files of this folder only.
 */
#ifndef KW_STORE_WRITE_H
#define KW_STORE_WRITE_H

#include "store/state.h"

/* Both take a history of the index, and remove it again if it was added for them and they fail. */

/* The kv becomes a record at revision `main`, as it is. Its lease must exist, unless the store is a follower. */
int kw_write_put(kw_store *store, int64_t main, kw_key_history *history, const kw_kv *kv);

/* A tombstone at revision `main`. */
int kw_write_delete(kw_store *store, int64_t main, kw_key_history *history);

/* A change that the disk has, when the store is opened: revisions rise. */
int kw_write_load(kw_store *store, kw_change change, const kw_kv *kv);

/* Takes changes of the open write back until `n` are left. */
void kw_write_undo_to(kw_store *store, size_t n);

#endif
