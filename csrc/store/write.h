/* SPDX-License-Identifier: MIT
 *
 * write: makes one change of a key or a lease in the index, the log, the leases and the commit group together, and
 * undoes it. For the files of this folder only.
 *
 * Functions that return `int` return KW_OK, or KW_ERR_NO_MEMORY with nothing changed.
 */
#ifndef KW_STORE_WRITE_H
#define KW_STORE_WRITE_H

#include "store/state.h"
#include "store/work.h"

/* Adds a put to the open write: the kv becomes the record of revision `main`, with all fields as given. Its lease must
 * exist, unless the store is a replica. After an error, a history without changes, which was added for this put, is
 * removed from the index and freed. */
int kw_write_put(kw_store *store, int64_t main, kw_key_history *history, const kw_kv *kv);

/* Adds a tombstone of revision `main` to the open write. After an error the history is treated like in kw_write_put. */
int kw_write_delete(kw_store *store, int64_t main, kw_key_history *history);

/* Adds a change that the database has, while the store is loaded. Changes must come in the order of revisions. A
 * lease of the kv that does not exist is ignored. */
int kw_write_load(kw_store *store, kw_change change, const kw_kv *kv);

/* Adds a grant to the open write. The id must be free. `now` is in milliseconds, `ttl` in seconds. */
int kw_write_grant(kw_store *store, int64_t now, int64_t id, int64_t ttl);

/* Adds a revocation to the open write. The lease must have no keys. It is removed from the table, but exists until the
 * write can no longer be undone. */
int kw_write_revoke(kw_store *store, kw_lease *lease);

/* Closes the open write. From now on the write can be undone only with its commit group. */
void kw_write_commit(kw_store *store);

/* Undoes the open write. */
void kw_write_rollback(kw_store *store);

/* Undoes the open write, or as much of it as the work allows. Returns true if the write is undone. */
bool kw_write_rollback_within(kw_store *store, kw_work *work);

/* Undoes all steps, or as many as the work allows. The commit group must have forgotten them already. Returns true if
 * none is left. */
bool kw_write_undo_all(kw_store *store, kw_work *work);

/* Forgets how to undo the steps of the oldest `n` words, which are durable. Updates their leases, within the work of a
 * turn; kw_store_step updates the others. */
void kw_write_forget_undo(kw_store *store, size_t n);

#endif
