/* SPDX-License-Identifier: MIT
 *
 * log: every record that is still known, in the order of revisions.
 *
 * A record is appended, and can be undone as long as it is the newest. Reads find one revision, or scan from one. The
 * log of a store in memory has all records in memory. The log of a durable store has only the tail in memory: the
 * records that are not in the database yet, whether or not they are in the journal. It reads all others from the
 * database: a walk returns their bytes in LMDB's map, and kw_log_read lends copies of them.
 *
 *   directory   [ first revision, chunk ] ...      searched by revision
 *   chunk       up to KW_LOG_CHUNK entries { revision, tombstone, record }, some of them holes
 *
 * Commit groups point to the entries of a durable log, which keep their addresses until they are dropped.
 *
 * Compaction makes holes. A chunk with at least half holes is squeezed, and joined with the previous chunk if both are
 * small.
 */
#ifndef KW_STORE_LOG_H
#define KW_STORE_LOG_H

#include "base/blob.h"
#include "codec/keyvalue.h"
#include "disk/commit_group.h"
#include "disk/database.h"
#include "model/kv.h"
#include "store/work.h"

#define KW_LOG_CHUNK KW_LIMIT(512, 8)

typedef struct kw_log kw_log;

/* A record that a walk returns. Its bytes are valid until the next change of the log, or until the reader of the
 * database moves on (kw_database_renew), which happens only in kw_store_poll and kw_store_wait. */
typedef struct kw_log_entry {
  kw_revision rev;
  bool tombstone;
  kw_slice bytes;
  kw_blob *blob; /* the same bytes in memory, borrowed; NULL: they are in LMDB's map */
} kw_log_entry;

typedef struct kw_log_cursor {
  size_t chunk;
  size_t at;
  kw_revision next; /* first revision to read from the database */
  bool is_on_disk;
} kw_log_cursor;

/* Makes an empty log. A durable store passes the database from which records are read, and the gathering commit group
 * to which changes are added; both must outlive the log. In memory both are NULL. Returns NULL if memory is short. */
kw_log *kw_log_new(kw_database *database, kw_commit_group *group);

/* Frees the log. Releases its records and the borrowed ones. */
void kw_log_free(kw_log *log);

/* Appends a record, whose revision is above all others, and adds it to the commit group. Takes the caller's reference.
 * Returns KW_ERR_NO_MEMORY, without taking the reference, if memory is short. */
int kw_log_append(kw_log *log, kw_revision rev, bool tombstone, kw_blob *record);

/* Undoes the newest append, but not in the commit group. Returns the bytes of the record. */
size_t kw_log_undo(kw_log *log);

/* {====== Reading ====== */

/* Returns the record of a revision; `tombstone` says whether the record is a tombstone. The record is borrowed until
 * the next change or release of the log. Returns NULL if the record should be in memory but is missing. A record that
 * should be in the database, but is missing or cannot be read, is empty, see kw_log_failure. */
kw_blob *kw_log_read(kw_log *log, kw_revision rev, bool tombstone);

/* Returns the bytes of a record, without copying them. They are valid until the next change of the log, or until the
 * reader of the database moves on. Returns an empty slice, and sets kw_log_failure, if the record is missing or cannot
 * be read. */
kw_slice kw_log_look(kw_log *log, kw_revision rev, bool tombstone);

/* Returns the size of a record, or 0 if the record is missing or cannot be read. Does not set kw_log_failure. */
size_t kw_log_size(const kw_log *log, kw_revision rev, bool tombstone);

#define KW_LOG_BATCH 32

/* Reads the records of up to KW_LOG_BATCH puts, which must all exist. The records are borrowed, as from kw_log_read. In
 * memory the cache misses of a batch overlap. */
void kw_log_read_batch(kw_log *log, const kw_revision *revs, size_t n, const kw_blob **records);

/* Returns a cursor before the first record >= rev. The cursor is valid until the next change of the log. */
kw_log_cursor kw_log_seek(const kw_log *log, kw_revision rev);

/* Moves to the next record. Returns false at the end, and at a record that cannot be read, see kw_log_failure. */
bool kw_log_next(kw_log *log, kw_log_cursor *cursor, kw_log_entry *entry);

/* Returns the record of an entry as a blob that the caller owns: a reference, or a copy of a record of the database.
 * Returns NULL if memory is short. */
static inline kw_blob *kw_log_keep(const kw_log_entry *entry) {
  return entry->blob != NULL ? kw_blob_retain(entry->blob) : kw_blob_copy(entry->bytes);
}

/* Returns how many bytes of an entry are read when a walk examines its key: all, if the entry comes from the database,
 * which checks the whole record. */
static inline size_t kw_log_looked_at(const kw_log_entry *entry) {
  return entry->blob == NULL ? entry->bytes.len : kw_keyvalue_key_in(entry->bytes).len;
}

/* Releases the borrowed records, and sets kw_log_failure back to KW_OK. */
void kw_log_release(kw_log *log);

/* Returns why the last unreadable record since the last release could not be read: KW_ERR_NO_MEMORY, or
 * KW_ERR_CORRUPT if the record is missing or damaged. Returns KW_OK if all were read. */
int kw_log_failure(const kw_log *log);

/* }====== */

/* {====== Removing ====== */

/* Removes the record of a revision. In a durable log, only a record that is in the database can be removed, and memory
 * for the removal must be reserved; an unreadable record is not removed. */
void kw_log_remove(kw_log *log, kw_revision rev, bool tombstone);

/* Reserves memory for `n` removals. Returns false if memory is short. */
bool kw_log_reserve_removals(kw_log *log, size_t n);

/* True if the gathering commit group has fewer than `n` changes, or if there is no group: a compaction stops before
 * it makes the group too large. */
bool kw_log_may_remove(const kw_log *log, size_t n);

/* }====== */

/* {====== With a database ====== */

/* Counts a record that the database had when the store was opened. */
void kw_log_found(kw_log *log, const kw_database_entry *entry);

/* Drops the records up to `rev` from memory: the database has them now, and its reader sees them. Frees some of them,
 * within the work of a turn; kw_log_free_dropped frees the others. */
void kw_log_move_to_disk(kw_log *log, int64_t rev);

/* Returns the revision up to which records are read from the database. */
int64_t kw_log_on_disk(const kw_log *log);

/* Frees another log, and takes over its records as dropped ones: later calls of kw_log_free_dropped for `log` free
 * them. No commit group may point to them. */
void kw_log_drop_all(kw_log *log, kw_log *old);

/* True if dropped records still take memory. */
bool kw_log_has_dropped(const kw_log *log);

/* Frees some of the dropped records, within the work of a turn. */
void kw_log_free_dropped(kw_log *log);

/* }====== */

/* Returns the number of records. */
size_t kw_log_count(const kw_log *log);

/* Returns the bytes that all records, including those of the database, take or would take in memory. */
size_t kw_log_bytes(const kw_log *log);

/* Returns the bytes that records take in memory, including dropped records that are not freed yet. */
size_t kw_log_memory(const kw_log *log);

/* Returns the bytes that the records which the database lacks take in memory; 0 for a store in memory. */
size_t kw_log_pending_bytes(const kw_log *log);

/* Returns what a record of `len` bytes adds to kw_log_bytes. */
size_t kw_log_cost(size_t len);

#endif
