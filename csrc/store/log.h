/* SPDX-License-Identifier: MIT
 *
 * log: every record that is still known, in order of revision.
 *
 * Writes are appended, and taken back while their group is open; a commit closes the group and, once it is
 * durable, calls on_durable. Reads find one revision, or scan from one. This log is in memory: what
 * is committed is durable at once.
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

#ifdef KW_PROBE
#define KW_LOG_CHUNK 8
#else
#define KW_LOG_CHUNK 512
#endif

typedef struct kw_log kw_log;

typedef struct kw_log_hook {
  /* Everything up to revision `rev` is durable. */
  void (*on_durable)(int64_t rev, void *ctx);
  void *ctx;
} kw_log_hook;

typedef struct kw_log_entry {
  kw_revision rev;
  bool tombstone;
  kw_blob *record; /* borrowed until the next change of the log, unless retained */
} kw_log_entry;

typedef struct kw_log_cursor {
  size_t chunk;
  size_t at;
} kw_log_cursor;

/* NULL if memory is short. */
kw_log *kw_log_new(kw_log_hook hook);
kw_log_hook kw_log_get_hook(const kw_log *log);
void kw_log_free(kw_log *log);

/* Appends a record to the open group; its revision is above all others. Takes the caller's reference, or
 * returns KW_ERR_NO_MEMORY and takes nothing. */
int kw_log_append(kw_log *log, kw_revision rev, bool tombstone, kw_blob *record);

/* Takes the last append of the open group back. */
void kw_log_undo(kw_log *log);

/* Closes the group, whose writes reach up to `rev`. May call on_durable. */
void kw_log_commit(kw_log *log, int64_t rev);

/* The record of a revision, borrowed until the next change of the log, or NULL. */
kw_blob *kw_log_read(const kw_log *log, kw_revision rev);

#define KW_LOG_BATCH 32

/* Reads up to KW_LOG_BATCH revisions that are all there, all at once: they come from memory side by side. */
void kw_log_read_batch(const kw_log *log, const kw_revision *revs, size_t n,
                       const kw_blob **records);

/* Forgets the record of a revision. */
void kw_log_remove(kw_log *log, kw_revision rev);

/* A cursor before the first record >= rev, good until the next change of the log. */
kw_log_cursor kw_log_seek(const kw_log *log, kw_revision rev);
bool kw_log_next(const kw_log *log, kw_log_cursor *cursor, kw_log_entry *entry);

/* How many records there are, and the bytes they take in all. */
size_t kw_log_count(const kw_log *log);
size_t kw_log_bytes(const kw_log *log);

/* What one record adds to kw_log_bytes. */
size_t kw_log_cost(const kw_blob *record);

#ifdef KW_PROBE
/* Whether every invariant of the log holds; else the text of one that does not. */
const char *kw_log_check(const kw_log *log);
#endif

#endif
