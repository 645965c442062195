/* SPDX-License-Identifier: MIT
 *
 * write: one change of one key or lease, in the index, the log, the leases and on the disk at once; and how it is
 * taken back. For the files of this folder only.
 */
#ifndef KW_STORE_WRITE_H
#define KW_STORE_WRITE_H

#include "store/state.h"

/* Both take a history of the index, and remove it again if it was added for them and they fail. */

/* The kv becomes a record at revision `main`, as it is. Its lease must exist, unless the store is a replica. */
int kw_write_put(kw_store *store, int64_t main, kw_key_history *history, const kw_kv *kv);

/* A tombstone at revision `main`. */
int kw_write_delete(kw_store *store, int64_t main, kw_key_history *history);

/* A change that the disk has, when the store is opened: revisions rise. */
int kw_write_load(kw_store *store, kw_change change, const kw_kv *kv);

/* The id must be free; the lease must have no keys any more. */
int kw_write_grant(kw_store *store, int64_t now, int64_t id, int64_t ttl);
int kw_write_revoke(kw_store *store, kw_lease *lease);

/* Ends the open write: it can be taken back only with its group; or it is taken back. */
void kw_write_commit(kw_store *store);
void kw_write_rollback(kw_store *store);

/* Takes back, in the index and the leases, everything that can be; the log has forgotten it. */
void kw_write_undo_all(kw_store *store);

/* The first `n` steps cannot be taken back any more. */
void kw_write_forget_undo(kw_store *store, size_t n);

#endif
