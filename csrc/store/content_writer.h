/* SPDX-License-Identifier: MIT
 *
 * content_writer: writes the content of a replica to a file, see disk/content.h.
 *
 *   IDLE --- begin ---> HOLDING --- hold, repeated ---> WRITING --- the thread has ended ---> IDLE
 *
 * Each `hold` retains the records of some more keys, as the keys were when the write began; when all are retained, a
 * thread of the writer writes them. The replica remains usable. is_done and wait report the thread's end.
 *
 * The file appears only when it is complete: the thread writes a temporary file in the same directory, syncs it, and
 * renames it. Several processes may write one file; the last one wins. If the file system supports that, the temporary
 * file has no name until it is complete, so that a killed process leaves no file.
 *
 * A writer belongs to one thread, which also owns the replica. After a fork the child's copy has no thread: it is idle.
 */
#ifndef KW_STORE_CONTENT_WRITER_H
#define KW_STORE_CONTENT_WRITER_H

#include "disk/content.h"
#include "store/store.h"

typedef struct kw_content_writer kw_content_writer;

/* Returns an idle writer of a file, or NULL if memory is short. The path is copied. */
kw_content_writer *kw_content_writer_new(const char *path);

/* Asks the thread to end, waits for it, and frees the writer. A file that is incomplete by then is discarded. */
void kw_content_writer_free(kw_content_writer *writer);

/* Begins to write the content that a replica has now. All keys of the replica are in the range. Sets the revision of
 * the meta to that of the replica. Returns KW_OK; KW_ERR_REQUEST_TOO_LARGE if the range is too long; or
 * KW_ERR_NO_MEMORY. After an error the writer is still idle. The writer must be idle. */
int kw_content_writer_begin(kw_content_writer *writer, const kw_store *replica,
                            const kw_range *range, kw_content_meta meta);

/* Visits at most this many keys of the same replica. Returns a positive number once the thread writes, 0 if there are
 * more keys, or an error, after which the writer is idle: KW_ERR_COMPACTED if the replica no longer knows the content
 * that it had when the write began; KW_ERR_REQUEST_TOO_LARGE if the file would be larger than KW_CONTENT_MAX_BYTES; or
 * KW_ERR_NO_MEMORY, also if no thread can be started. The writer must be holding. */
int kw_content_writer_hold(kw_content_writer *writer, kw_store *replica, size_t most);

/* True from kw_content_writer_begin until all records are retained, or the write is abandoned. */
bool kw_content_writer_is_holding(const kw_content_writer *writer);

/* True if the writer is idle. After a write has ended, each call releases a bounded number of its records, so the
 * writer may become idle only after several calls. */
bool kw_content_writer_is_done(kw_content_writer *writer);

/* Waits for the thread. The writer is then idle. A write that is still holding is abandoned. */
void kw_content_writer_wait(kw_content_writer *writer);

/* Returns 0 if the last write has succeeded, or the errno of the system call that has failed; ECANCELED if the write
 * was abandoned, or belongs to the parent process. The writer must be idle. */
int kw_content_writer_outcome(const kw_content_writer *writer);

#endif
