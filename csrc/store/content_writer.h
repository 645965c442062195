/* SPDX-License-Identifier: MIT
 *
 * content_writer: writes the content of a replica to a file, see disk/content.h.
 *
 *   IDLE --- begin ---> HOLDING --- hold, some times ---> WRITING --- the thread has ended ---> IDLE
 *
 * `hold` retains the records of some more keys, as the keys were when the write began; a thread of the writer then
 * writes them. The replica stays usable. is_done and wait report the thread's end.
 *
 * The file appears whole: the thread writes a temporary file in the same directory, syncs it, and renames it. Several
 * processes may write one file; the last one counts. Wherever the file system can do so the temporary file has no name
 * until it is whole, so that a process that is killed leaves none.
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

/* Asks the thread to end, waits for it, and frees the writer. A file that is not whole by then is not written. */
void kw_content_writer_free(kw_content_writer *writer);

/* Begins to write the content that a replica has now. All its keys lie in the range. The revision of the meta is set
 * to that of the replica. Returns KW_OK; KW_ERR_REQUEST_TOO_LARGE if the range is too long; or KW_ERR_NO_MEMORY: the
 * writer is then idle as before. The writer must be idle. */
int kw_content_writer_begin(kw_content_writer *writer, const kw_store *replica,
                            const kw_range *range, kw_content_meta meta);

/* Visits at most so many keys of the same replica. Returns a positive number once the thread writes, and 0 if there are
 * more keys; or an error, and the writer is then idle: KW_ERR_COMPACTED if the replica does not know any more what it
 * had when the write began; KW_ERR_REQUEST_TOO_LARGE if the file would be larger than KW_CONTENT_MAX_BYTES; or
 * KW_ERR_NO_MEMORY. The writer must be holding. */
int kw_content_writer_hold(kw_content_writer *writer, kw_store *replica, size_t most);

/* True if begin was called, and not all keys are held yet. */
bool kw_content_writer_is_holding(const kw_content_writer *writer);

/* True if the writer is idle. Releases a bounded number of the records of a write that has ended, so that the writer
 * may become idle some calls later. */
bool kw_content_writer_is_done(kw_content_writer *writer);

/* Waits for the thread. The writer is then idle. A write that is still holding is given up. */
void kw_content_writer_wait(kw_content_writer *writer);

/* Returns 0 if the last write has succeeded, or the errno of the system call that has failed; ECANCELED if the write
 * was not made to the end. The writer must be idle. */
int kw_content_writer_outcome(const kw_content_writer *writer);

#endif
