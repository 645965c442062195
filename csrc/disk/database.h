/* SPDX-License-Identifier: MIT
 *
 * database: the durable state of a store, in a directory: records, leases, rows and a few numbers, in LMDB.
 *
 * A database has one reader, a read transaction: it sees what was durable when it last moved on. kw_database_write
 * and kw_database_copy may run in another thread meanwhile, but not during kw_database_renew or kw_database_swap. All
 * other functions belong to the reader's thread.
 *
 * The directory has the files "lock", which names the process that has it open, data.mdb, and copy.mdb, which is not
 * finished and of no use after a crash; and LMDB's own lock files of these two. lmdb_table.h has the tables of
 * data.mdb. A journal may lie beside them, see disk/journal.h.
 */
#ifndef KW_DISK_DATABASE_H
#define KW_DISK_DATABASE_H

#include "disk/commit_group.h"

struct kw_lmdb_file;

typedef struct kw_database kw_database;

typedef struct kw_database_entry {
  kw_revision rev;
  bool tombstone;
  kw_slice record; /* good until the reader moves on */
} kw_database_entry;

/* Tells which journal belongs to the database. */
typedef struct kw_database_identity {
  uint64_t id;    /* of the store, random */
  uint64_t epoch; /* of the journal: rises whenever a journal is opened */
  bool
      has_journal; /* the journal of this epoch may have groups that the database lacks: there was no clean close */
} kw_database_identity;

#define KW_REASON_ROOM 512 /* bytes of a sentence that says why something failed */

/* Why it is unknown what was written. */
typedef struct kw_fault {
  const char *what; /* a static text; NULL: there is no fault */
  int number;       /* an errno, or an error of LMDB; 0: none is known */
} kw_fault;

#define KW_FAULT_REMOVED "the data directory, or the lock file in it, was removed or replaced"
#define KW_FAULT_DATABASE "the database cannot be written"

/* Writes a sentence: `before`, a colon, and the fault with the system's text. */
void kw_fault_describe(const char *before, kw_fault fault, char text[KW_REASON_ROOM]);

/* {====== Opening ====== */

/* Opens the database of a directory; makes directory and database if they do not exist. `map_bytes` bounds the size
 * of the database, but a database that exists may grow by `spare_bytes` in any case. Until it is closed no other
 * process can open it. All of the database is checked. Returns KW_OK, KW_ERR_NO_MEMORY; or KW_ERR_CORRUPT if it is
 * damaged, KW_ERR_STORAGE or KW_ERR_NO_SPACE, with a sentence in `text`. */
int kw_database_open(const char *path, size_t map_bytes, size_t spare_bytes, kw_database **db,
                     char text[KW_REASON_ROOM]);

/* Closes the database. Views of it have to be closed before. */
void kw_database_close(kw_database *db);

/* Writes the sentence that says why a directory cannot be opened. Returns KW_ERR_STORAGE. */
int kw_database_refuse(char text[KW_REASON_ROOM], const char *path, const char *why);

/* True if a parent of this process has opened the database. The child may only close it, which leaves the parent's
 * database alone. */
bool kw_database_is_inherited(const kw_database *db);

/* Returns the numbers that were durable when the database was opened. */
kw_commit_meta kw_database_get_meta(const kw_database *db);

/* Returns which journal belongs to the database. Not beside kw_database_set_identity. */
kw_database_identity kw_database_get_identity(const kw_database *db);

/* Makes an identity that of the database, durably. May run in another thread, beside kw_database_write. Returns KW_OK;
 * KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE. */
int kw_database_set_identity(kw_database *db, kw_database_identity identity);

/* Writes a group that the journal has beyond the database, and moves the reader on: the database was opened with it.
 * Returns what kw_database_write returns. */
int kw_database_recover(kw_database *db, const kw_commit_group *group);

/* True if the path of the database means its directory. False after that was moved or removed, and also if this process
 * may no longer see it: then no file is touched by its path. What is open can be written. Any thread. */
bool kw_database_is_in_place(const kw_database *db);

/* True if the directory was removed, or the lock file in it, which keeps others out, was removed or replaced: what is
 * written from now on may be lost. Any thread. */
bool kw_database_is_removed(const kw_database *db);

/* Returns the path of the directory, valid until the database is closed. */
const char *kw_database_path(const kw_database *db);

/* Returns the open file, see disk/lmdb_file.h. It is borrowed until the next kw_database_swap or kw_database_close;
 * a caller that keeps the file longer retains it. */
struct kw_lmdb_file *kw_database_file(const kw_database *db);

/* }====== */

/* Writes a commit group, and makes it durable. The reader does not see it before it moves on. Returns KW_OK;
 * KW_ERR_NO_MEMORY if nothing was written; KW_ERR_NO_SPACE if nothing was written, except for the first of the
 * records that the group removes, so that the next write has more room; or KW_ERR_STORAGE if it is unknown what was
 * written. */
int kw_database_write(const kw_database *db, const kw_commit_group *group);

/* The same for groups that the journal has, and whose room was reserved: they leave none to others. */
int kw_database_apply(const kw_database *db, const kw_commit_group *group);

/* Returns the bytes that a group may need in the database. */
size_t kw_database_need(const kw_database *db, const kw_commit_group *group);

/* Makes room for groups that need `need` bytes, `group` the last of them: writing them together will not fail for want
 * of room. May run in a third thread, beside kw_database_write. Returns KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or
 * KW_ERR_STORAGE. */
int kw_database_reserve(const kw_database *db, const kw_commit_group *group, size_t need);

/* {====== Reading ====== */

/* Moves the reader on to what is durable now. What it read before is no longer valid. Returns KW_OK or
 * KW_ERR_STORAGE. */
int kw_database_renew(kw_database *db);

/* Returns the number of records that the reader sees. */
size_t kw_database_records(const kw_database *db);

/* Reads one record, which is valid until the reader moves on. Returns KW_OK, or KW_ERR_CORRUPT if the record does not
 * exist or cannot be read. */
int kw_database_read(const kw_database *db, kw_revision rev, bool tombstone, kw_slice *record);

/* Reads the first record >= rev. Returns 1, 0 if there is none, or KW_ERR_CORRUPT if it cannot be read. Calls that
 * continue where the last one ended are cheap. */
int kw_database_next(kw_database *db, kw_revision rev, kw_database_entry *entry);

/* Reads the lease after the one with the id *after, which must exist, or the first one if `after` is NULL. `after`
 * and `id` may be the same pointer. `ttl` is in seconds. Returns false at the end, and on a failure. */
bool kw_database_next_lease(kw_database *db, const int64_t *after, int64_t *id, int64_t *ttl);

/* Reads the first row whose name is above *name; *name becomes the name of that row. A walk begins with an empty
 * name. Both slices are good until the reader moves on. Returns false at the end, and on a failure. */
bool kw_database_next_row(kw_database *db, kw_slice *name, kw_slice *bytes);

/* Returns why kw_database_next_lease or kw_database_next_row has failed since the database was opened: KW_ERR_CORRUPT
 * if a lease or a row could not be read, KW_ERR_NO_MEMORY if memory was short; or KW_OK if neither has. */
int kw_database_walk_failure(const kw_database *db);

/* Returns the bytes of the file that hold data, as of the last time that the reader moved on. */
int64_t kw_database_in_use(const kw_database *db);

/* Returns the bytes of the file, by asking the system. A part of them is allocated ahead of need. */
int64_t kw_database_size(const kw_database *db);

/* }====== */

/* {====== Defragmentation ====== */

/* Copies the database, without free pages, to a file beside it, after all of it was checked. Returns KW_OK; or
 * KW_ERR_CORRUPT, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE, and then there is no copy. Copy and swap fail if
 * the directory is not in place. */
int kw_database_copy(const kw_database *db);

/* Replaces the file of the database by its copy, and moves the reader on to it. *is_swapped becomes true if that was
 * done; an error then means that a crash may bring the old file back. Otherwise the database is as it was, and the
 * copy is removed. Returns KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE. Syncs the directory in the
 * caller's thread. The replaced file stays open until kw_database_close_replaced, which comes before the next swap. */
int kw_database_swap(kw_database *db, bool *is_swapped);

/* Closes the file that the last swap has replaced, if there is one: the system then gives all its pages back, which
 * takes long. May run in another thread, like kw_database_write. */
void kw_database_close_replaced(kw_database *db);

/* }====== */

#endif
