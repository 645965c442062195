/* SPDX-License-Identifier: MIT
 *
 * snapshot: an image of a store in an unnamed temporary file.
 *
 * The image shows the store as it was when the snapshot was opened. A thread of the snapshot writes the file: from a
 * view of the database, or, for a store in memory, from batches of records. The store remains usable. The thread closes
 * the view as soon as the file is complete, however slowly the file is read.
 *
 * A batch has the references to records that one turn has gathered, in the order of the log. Few batches wait for the
 * thread at a time; the thread rings the bell when it has read one. While a snapshot gathers, compactions remove no
 * records. The leases are copied first, in several turns.
 *
 *   open -> the thread writes -> is_ready -> outcome, size, read ... -> close
 *
 * The file is in the directory of the store; for a store in memory in $TMPDIR, or in /tmp if that is not set. It
 * disappears when the snapshot is closed. All functions are called by the thread of the store.
 */
#ifndef KW_STORE_SNAPSHOT_H
#define KW_STORE_SNAPSHOT_H

#include "store/store.h"

#define KW_MAX_SNAPSHOTS 8 /* open snapshots of a store: each is a file as large as the store */

typedef struct kw_snapshot kw_snapshot;

/* {====== Gathering ====== */

/* True if a snapshot of a store in memory has not gathered all its leases and records. */
bool kw_snapshot_is_gathering(const kw_store *store);

/* True if kw_snapshot_step has something to do. */
bool kw_snapshot_is_due(const kw_store *store);

/* Gathers leases, or a batch of records, for each snapshot whose thread can take one. Releases the batches that were
 * read, and frees closed snapshots whose threads have ended. */
void kw_snapshot_step(kw_store *store);

/* Gathers everything that is left, in one piece: the caller is about to change the history. A snapshot fails if memory
 * is short for that. */
void kw_snapshot_gather_all(kw_store *store);

/* }====== */

/* Begins a snapshot, and starts its thread. The snapshot of a durable store has the content of its database, so the
 * caller makes a checkpoint first; that of a store in memory has everything. The caller owns the snapshot, which may
 * outlive the store. Errors: KW_ERR_NO_MEMORY, also if no thread can be started, KW_ERR_NO_SPACE, KW_ERR_CORRUPT,
 * KW_ERR_TOO_MANY_SNAPSHOTS; or KW_ERR_ABORTED, with a sentence in `text`. */
int kw_snapshot_open(kw_store *store, kw_snapshot **snapshot, char text[KW_REASON_ROOM]);

/* Closes the file and frees the snapshot: at once, or if the thread is working, in a later kw_snapshot_step. The thread
 * then stops soon; this call does not wait for it. */
void kw_snapshot_close(kw_snapshot *snapshot);

/* True once the file is complete, or has failed; this call then releases the data that the thread has read from. If it
 * returns false, it has done the work of kw_snapshot_step for this snapshot, which is awaited from now on. The bell
 * that the store had at kw_snapshot_open rings when the thread is done. */
bool kw_snapshot_is_ready(kw_snapshot *snapshot);

/* Returns KW_OK, or the error of the snapshot: an error of kw_image_write, with KW_ERR_ABORTED and a sentence in `text`
 * for KW_ERR_STORAGE; KW_ERR_CANCELLED in a child process, if the snapshot was not ready before the fork. The snapshot
 * must be ready. The file of a failed snapshot is empty. */
int kw_snapshot_outcome(const kw_snapshot *snapshot, char text[KW_REASON_ROOM]);

/* Returns the size of the bbolt file at the beginning of the snapshot's file; its SHA-256, KW_SHA256_BYTES, follows.
 * The snapshot must be ready, with the outcome KW_OK. */
int64_t kw_snapshot_size(const kw_snapshot *snapshot);

/* Reads exactly `n` bytes at offset `at` of a complete file. Returns KW_OK; or KW_ERR_ABORTED, with a sentence in
 * `text`, if the bytes do not exist or cannot be read. */
int kw_snapshot_read(const kw_snapshot *snapshot, int64_t at, uint8_t *to, size_t n,
                     char text[KW_REASON_ROOM]);

/* {====== For the store ====== */

/* True if an awaited snapshot has become ready: its last call of kw_snapshot_is_ready returned false, and the next one
 * will return true. */
bool kw_snapshot_is_awaited(const kw_store *store);

/* Ends the threads of all snapshots, before the store is freed. An incomplete file has then failed. */
void kw_snapshot_end_all(kw_store *store);

/* }====== */

#endif
