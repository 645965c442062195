/* SPDX-License-Identifier: MIT
 *
 * database: the records of a durable store in a directory: LMDB.
 *
 *   records   revision (8 bytes), number in it (4), tombstone (1), big-endian  ->  the encoded KeyValue
 *   leases    id, big-endian                                                   ->  seconds, big-endian
 *   kept      names, see store/rows.h                                          ->  bytes
 *   meta      names                                                            ->  numbers, big-endian
 *
 * It has one reader, which sees what was durable when it last moved on. Writing and copying may happen in another
 * thread meanwhile, but for a swap; all else happens in the thread of the reader.
 */
#ifndef KW_STORE_DATABASE_H
#define KW_STORE_DATABASE_H

#include "store/commit_group.h"

struct kw_lmdb_file;

typedef struct kw_database kw_database;

typedef struct kw_disk_entry {
  kw_revision rev;
  bool tombstone;
  kw_slice record; /* good until the reader moves on */
} kw_disk_entry;

#define KW_DISK_TEXT 512

/* Opens or makes a database in a directory, which it makes, too. KW_ERR_STORAGE or KW_ERR_NO_SPACE, with a sentence
 * in `text`, if that cannot be; KW_ERR_NO_MEMORY. Nobody else can open it meanwhile. */
int kw_database_open(const char *path, size_t map_bytes, kw_database **db, char text[KW_DISK_TEXT]);
void kw_database_close(kw_database *db);

/* The sentence that says why a directory cannot be opened. KW_ERR_STORAGE. */
int kw_database_refuse(char text[KW_DISK_TEXT], const char *path, const char *why);

/* Whether another process has opened it, and this is its child: then it can only be closed, which leaves the parent's
 * alone. */
bool kw_database_is_inherited(const kw_database *db);

/* What was there when it was opened. */
kw_disk_meta kw_database_get_meta(const kw_database *db);
const char *kw_database_path(const kw_database *db);

/* Returns the open file, see store/lmdb_file.h. */
struct kw_lmdb_file *kw_database_file(const kw_database *db);

/* {====== Writing ====== */

/* Makes changes, and `meta`, true and durable at once. Records that are put rise; removing what is not there is fine.
 * After KW_ERR_NO_MEMORY nothing has happened. After KW_ERR_NO_SPACE nothing has happened but that the first of the
 * records that were to be removed may be: then there is more room for the next write. KW_ERR_STORAGE leaves open what
 * has happened.
 *
 * Puts leave some room to deletes, and both leave some to removals, so that a full disk can be freed by
 * compaction. */
int kw_database_write(const kw_database *db, const kw_commit_group *group);

/* }====== */

/* {====== Reading ====== */

/* The reader moves on to what is durable now. KW_ERR_STORAGE. */
int kw_database_renew(kw_database *db);

size_t kw_database_records(const kw_database *db);

/* KW_OK; KW_ERR_CORRUPT if the record is not there, or cannot be read. */
int kw_database_read(const kw_database *db, kw_revision rev, bool tombstone, kw_slice *record);

/* The first record >= rev: 1, 0 if there is none, KW_ERR_CORRUPT if it cannot be read. */
int kw_database_next(kw_database *db, kw_revision rev, kw_disk_entry *entry);

/* The lease after the one of an id, or the first, if that is NULL; `id` may be where `after` points. False at the
 * end. */
bool kw_database_next_lease(kw_database *db, const int64_t *after, int64_t *id, int64_t *ttl);

/* The first row whose name is above *name, which becomes its name: start with an empty one. Both slices are good
 * until the reader moves on. False at the end. */
bool kw_database_next_row(kw_database *db, kw_slice *name, kw_slice *bytes);

/* Whether a lease or a row cannot be read: then the ends above may be false ones. */
bool kw_database_is_damaged(const kw_database *db);

/* Bytes of the file, and those of it that are in use. */
int64_t kw_database_get_size(const kw_database *db, int64_t *in_use);

/* }====== */

/* {====== Defragmentation ====== */

/* Copies all that there is to a file beside it, without the gaps. KW_ERR_NO_SPACE, KW_ERR_STORAGE: there is none. */
int kw_database_copy(const kw_database *db);

/* The copy takes the place of what it is a copy of, and the reader moves on to it. *is_swapped says whether it did:
 * if so, after a failure it might not last; if not, all is as it was, and the copy is gone. KW_ERR_NO_SPACE,
 * KW_ERR_STORAGE. */
int kw_database_swap(kw_database *db, bool *is_swapped);

/* }====== */

#endif
