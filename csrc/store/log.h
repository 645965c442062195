/* SPDX-License-Identifier: MIT
 *
 * log: every record that is still known, in order of revision.
 *
 * Writes are appended, and taken back while they are open; a commit closes them and, once they are
 * durable, calls on_durable. Reads find one revision, or scan from one. Without a disk what is committed is durable at
 * once. With one, the log in memory is a tail of what is not durable yet, and all else is read from the disk, as a copy
 * that is lent.
 *
 *   directory   [ first revision, chunk ] ...      searched by revision
 *   chunk       up to KW_LOG_CHUNK entries { revision, tombstone, record }, some of them holes
 *
 * Compaction makes holes. A chunk that is more hole than record is squeezed, and joined with its neighbour.
 */
#ifndef KW_STORE_LOG_H
#define KW_STORE_LOG_H

#include "base/blob.h"
#include "model/kv.h"
#include "store/disk.h"

#ifdef KW_PROBE
#define KW_LOG_CHUNK 8
#else
#define KW_LOG_CHUNK 512
#endif

typedef struct kw_log kw_log;

typedef struct kw_log_hook {
  /* Everything up to revision `rev` is durable. */
  void (*on_durable)(int64_t rev, void *ctx);
  /* What was not durable yet never will be; the log has forgotten it already. */
  void (*on_failure)(int rc, void *ctx);
  void *ctx;
} kw_log_hook;

typedef struct kw_log_entry {
  kw_revision rev;
  bool tombstone;
  kw_blob *record; /* borrowed until the next change or release of the log, unless retained */
} kw_log_entry;

typedef struct kw_log_cursor {
  size_t chunk;
  size_t at;
  kw_revision next; /* on the disk */
  bool is_on_disk;
} kw_log_cursor;

/* NULL if memory is short. The disk, which may be NULL, becomes the log's. */
kw_log *kw_log_new(kw_log_hook hook, kw_disk *disk);
kw_log_hook kw_log_get_hook(const kw_log *log);
void kw_log_free(kw_log *log);

/* Appends a record to the open group; its revision is above all others. Takes the caller's reference, or
 * returns KW_ERR_NO_MEMORY and takes nothing. */
int kw_log_append(kw_log *log, kw_revision rev, bool tombstone, kw_blob *record);

/* Takes the last append of the open group back. */
void kw_log_undo(kw_log *log);

/* Closes the group, whose writes reach up to `rev`. May call on_durable. */
void kw_log_commit(kw_log *log, int64_t rev);

/* {====== With a disk ====== */

kw_disk *kw_log_disk(const kw_log *log);

/* What is durable beside records. */
kw_disk_meta kw_log_meta(const kw_log *log);

/* Tells the log of a record that the disk has, when it is opened. */
void kw_log_found(kw_log *log, const kw_disk_entry *entry);

/* What is committed goes to the disk, if there is any and the disk is idle; then `meta`, but for its revision, is
 * durable with it. Returns whether it went. */
bool kw_log_flush(kw_log *log, const kw_disk_meta *meta);

/* How many groups have become durable. */
uint64_t kw_log_commits(const kw_log *log);

/* The next flush goes in any case, and is followed by a defragmentation. */
void kw_log_defragment(kw_log *log);

/* Takes what the disk has done, and calls the hook; with `wait`, waits for it. False if nothing was under way. */
bool kw_log_poll(kw_log *log, bool wait);

/* Returns a ticket for what has been committed up to now, and for `meta`. Tickets rise. 0 is the ticket of nothing. */
uint64_t kw_log_ticket(const kw_log *log, const kw_disk_meta *meta);

/* True once the writes of this ticket are durable, or have failed. */
bool kw_log_is_settled(const kw_log *log, uint64_t ticket);

/* Returns the newest ticket that is settled. */
uint64_t kw_log_settled(const kw_log *log);

#define KW_UNSETTLED 1 /* above 0, where no error is */

/* Returns KW_OK if the writes of this ticket are durable, KW_UNSETTLED if the ticket is not settled, else why the
 * writes failed. The log remembers only the last failures: a ticket that is not newer than a forgotten failure gives
 * KW_ERR_STORAGE, since its outcome is unknown. */
int kw_log_outcome(const kw_log *log, uint64_t ticket);

/* Ends the loan of records. */
void kw_log_release(kw_log *log);

/* Why the last record that could not be read since the last release could not: KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT if
 * the disk does not have it, or not whole. KW_OK if all could. What was given in its place is empty, and a scan has
 * come to an end there. */
int kw_log_failure(const kw_log *log);

/* }====== */

/* The record of a revision, borrowed until the next change or release of the log, or NULL. */
kw_blob *kw_log_read(kw_log *log, kw_revision rev, bool tombstone);

#define KW_LOG_BATCH 32

/* Reads up to KW_LOG_BATCH revisions of puts that are all there, all at once: they come from memory side by side. */
void kw_log_read_batch(kw_log *log, const kw_revision *revs, size_t n, const kw_blob **records);

/* Forgets the record of a revision. With a disk, room for that must have been made. */
void kw_log_remove(kw_log *log, kw_revision rev, bool tombstone);
bool kw_log_reserve_removals(kw_log *log, size_t n);

/* Whether fewer changes than `n` wait for the disk. */
bool kw_log_may_remove(const kw_log *log, size_t n);

/* A cursor before the first record >= rev, good until the next change of the log. */
kw_log_cursor kw_log_seek(const kw_log *log, kw_revision rev);
bool kw_log_next(kw_log *log, kw_log_cursor *cursor, kw_log_entry *entry);

/* How many records there are, and the bytes they take in all; and those of them that are not durable. */
size_t kw_log_count(const kw_log *log);
size_t kw_log_bytes(const kw_log *log);
size_t kw_log_pending_bytes(const kw_log *log);

/* What one record adds to kw_log_bytes. */
size_t kw_log_cost(const kw_blob *record);

#ifdef KW_PROBE
/* Whether every invariant of the log holds; else the text of one that does not. */
const char *kw_log_check(const kw_log *log);
#endif

#endif
