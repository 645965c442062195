/* SPDX-License-Identifier: MIT
 *
 * snapshot: an image of a store, as it is when the snapshot is opened, in a file without a name.
 *
 * A thread of its own writes the file: from a view of the disk, or from the records of a store in memory, which are
 * held meanwhile. The store goes on, and once the file is whole it is held no longer, however slowly the file is read.
 * The file lies in the directory of the store, or in $TMPDIR, and is gone with its snapshot.
 */
#ifndef KW_STORE_SNAPSHOT_H
#define KW_STORE_SNAPSHOT_H

#include "store/store.h"

#define KW_MAX_SNAPSHOTS 8 /* of a store, at a time: each is a file as large as the store */

typedef struct kw_snapshot kw_snapshot;

/* Begins a snapshot of what is durable. KW_ERR_NO_MEMORY, KW_ERR_STORAGE, KW_ERR_NO_SPACE;
 * KW_ERR_TOO_MANY_SNAPSHOTS. */
int kw_snapshot_open(kw_store *store, kw_snapshot **snapshot);
void kw_snapshot_close(kw_snapshot *snapshot);

/* Whether the file is whole, or will never be; if not, the store's bell is rung once it is, and until it is asked for
 * again kw_snapshot_is_awaited holds. */
bool kw_snapshot_is_ready(kw_snapshot *snapshot);

/* Of one that is ready. */
int kw_snapshot_outcome(const kw_snapshot *snapshot);

/* Bytes of the bbolt file; its sum follows, KW_SHA256_BYTES. */
int64_t kw_snapshot_size(const kw_snapshot *snapshot);

/* Reads so many bytes of what is there: KW_OK or KW_ERR_STORAGE. */
int kw_snapshot_read(const kw_snapshot *snapshot, int64_t at, uint8_t *to, size_t n);

/* {====== For the store ====== */

/* Whether any snapshot is ready that was asked for before. */
bool kw_snapshot_is_awaited(const kw_store *store);

/* The store is about to go: what is not whole never will be. */
void kw_snapshot_end_all(kw_store *store);

/* }====== */

#endif
