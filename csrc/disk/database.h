/* SPDX-License-Identifier: MIT
 *
 * database: the durable state of a store, in a directory: records, leases, rows and a few numbers, in LMDB.
 *
 * A database has one reader, a read transaction, which sees what was durable when the reader last moved on.
 * kw_database_write, kw_database_apply and kw_database_copy may run in another thread, except during kw_database_renew
 * and kw_database_swap. All other functions belong to the reader's thread, unless their contracts say otherwise.
 *
 * The directory has the files "lock", which names the process that has it open, data.mdb, and copy.mdb, which is not
 * finished and of no use after a crash; and LMDB's own lock files of these two. lmdb_table.h has the tables of
 * data.mdb. The files of the journal are in the same directory, see disk/journal.h.
 */
#ifndef KW_DISK_DATABASE_H
#define KW_DISK_DATABASE_H

#include "disk/commit_group.h"

struct kw_lmdb_file;

typedef struct kw_database kw_database;

typedef struct kw_database_entry {
  kw_revision rev;
  bool tombstone;
  kw_slice record; /* valid until the reader moves on */
} kw_database_entry;

/* Says which journal belongs to the database. */
typedef struct kw_database_identity {
  uint64_t id;    /* of the store, random */
  uint64_t epoch; /* of the journal: rises whenever a journal is opened or closed */
  /* The store was not closed: the journal of this epoch may have groups that the database lacks. */
  bool has_journal;
} kw_database_identity;

#define KW_REASON_ROOM 512 /* bytes of a sentence that explains a failure */

/* Why it is unknown what was written. */
typedef struct kw_fault {
  const char *what; /* a static text; NULL: no fault */
  int number;       /* an errno, or an error of LMDB; 0: unknown */
} kw_fault;

#define KW_FAULT_REMOVED "the data directory, or the lock file in it, was removed or replaced"
#define KW_FAULT_DATABASE "the database cannot be written"

/* Writes a sentence: `before`, a colon, and the fault with the system's text. */
void kw_fault_describe(const char *before, kw_fault fault, char text[KW_REASON_ROOM]);

/* {====== Opening ====== */

/* Opens the database of a directory; makes directory and database if they do not exist. `map_bytes` limits the size of
 * the database, but an existing database may always grow by `spare_bytes`. No other process can open the database until
 * it is closed. The whole database is checked. Returns KW_OK; KW_ERR_NO_MEMORY, with a sentence in `text` if the
 * address space is too small; or KW_ERR_CORRUPT if the database is damaged, KW_ERR_STORAGE or KW_ERR_NO_SPACE, with a
 * sentence in `text`. */
int kw_database_open(const char *path, size_t map_bytes, size_t spare_bytes, kw_database **db,
                     char text[KW_REASON_ROOM]);

/* Closes the database. All views of it must be closed already. */
void kw_database_close(kw_database *db);

/* Writes the sentence that says why a directory cannot be opened. Returns KW_ERR_STORAGE. */
int kw_database_refuse(char text[KW_REASON_ROOM], const char *path, const char *why);

/* True if a parent of this process has opened the database. The child may only close it, which leaves the parent's
 * database alone. */
bool kw_database_is_inherited(const kw_database *db);

/* Returns the numbers that were durable when the database was opened. */
kw_commit_meta kw_database_get_meta(const kw_database *db);

/* Returns which journal belongs to the database. Must not run at the same time as kw_database_set_identity. */
kw_database_identity kw_database_get_identity(const kw_database *db);

/* Sets the identity of the database, durably. May run in another thread, at the same time as kw_database_write. Returns
 * KW_OK; KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE. */
int kw_database_set_identity(kw_database *db, kw_database_identity identity);

/* Writes a group that only the journal has, and moves the reader on: to the callers, the database was opened with this
 * group. Returns what kw_database_write returns. */
int kw_database_recover(kw_database *db, const kw_commit_group *group);

/* True if the path of the database still leads to its directory. False if the directory was moved or removed, or if
 * this process may no longer see it: files must then not be touched by path, but open files can be written. Any
 * thread. */
bool kw_database_is_in_place(const kw_database *db);

/* True if the directory was removed, or if its lock file, which keeps other processes out, was removed or replaced:
 * anything written from now on may be lost. Any thread. */
bool kw_database_is_removed(const kw_database *db);

/* Returns the path of the directory, valid until the database is closed. */
const char *kw_database_path(const kw_database *db);

/* Returns the open file, see disk/lmdb_file.h. It is borrowed until the next kw_database_swap or kw_database_close;
 * a caller that keeps the file longer retains it. */
struct kw_lmdb_file *kw_database_file(const kw_database *db);

/* }====== */

/* Writes a commit group, and makes it durable. The reader sees the group only after it has moved on. Returns KW_OK;
 * KW_ERR_NO_MEMORY if nothing was written; KW_ERR_NO_SPACE if nothing was written, but some of the records that the
 * group removes, the first ones, may be removed, so that the next write has more space; or KW_ERR_STORAGE if it is
 * unknown what was written. */
int kw_database_write(const kw_database *db, const kw_commit_group *group);

/* Like kw_database_write, for groups that are in the journal, and whose space was reserved: they may use all of it. */
int kw_database_apply(const kw_database *db, const kw_commit_group *group);

/* Returns the number of leaf pages that the reader sees, for kw_database_need. */
size_t kw_database_leaves(const kw_database *db);

/* Returns the maximum number of bytes that a group may need in the database. `leaves` is the result of
 * kw_database_leaves. Walks over the group. Any thread. */
size_t kw_database_need(const kw_database *db, size_t leaves, const kw_commit_group *group);

/* Reserves space for groups that need `need` bytes together, and of which `group` is the last: writing them will not
 * fail for lack of space. May run in a third thread, at the same time as kw_database_write. Returns KW_OK,
 * KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE. */
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

/* Reads the first record >= rev. Returns 1, 0 if there is none, or KW_ERR_CORRUPT if it cannot be read. A call that
 * continues where the previous one ended is cheap. */
int kw_database_next(kw_database *db, kw_revision rev, kw_database_entry *entry);

/* Reads the lease after the one with the id *after, which must exist, or the first one if `after` is NULL. `after`
 * and `id` may be the same pointer. `ttl` is in seconds. Returns false at the end, and on a failure. */
bool kw_database_next_lease(kw_database *db, const int64_t *after, int64_t *id, int64_t *ttl);

/* Reads the first row whose name is above *name; *name becomes the name of that row. A walk begins with an empty name.
 * Both slices are valid until the reader moves on. Returns false at the end, and on a failure. */
bool kw_database_next_row(kw_database *db, kw_slice *name, kw_slice *bytes);

/* Returns KW_ERR_CORRUPT if kw_database_next_lease or kw_database_next_row could not read a lease or a row since the
 * database was opened, else KW_OK. */
int kw_database_walk_failure(const kw_database *db);

/* Returns how many bytes of the file had data when the reader last moved on. */
int64_t kw_database_in_use(const kw_database *db);

/* Returns the size of the file, which a system call reads. A part of it is allocated ahead of need. */
int64_t kw_database_size(const kw_database *db);

/* }====== */

/* {====== Defragmentation ====== */

/* Checks the whole database, then copies it, without free pages, to a file in the same directory. Returns KW_OK; or
 * KW_ERR_CORRUPT, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE, and then there is no copy. Copy and swap fail if
 * the directory is not in place. */
int kw_database_copy(const kw_database *db);

/* Replaces the file of the database by its copy, and moves the reader on to the copy. If that was done, *is_swapped
 * becomes true, and an error means that a crash may bring the old file back. Otherwise the database is unchanged, and
 * the copy is removed, if the directory is in place. Returns KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or
 * KW_ERR_STORAGE. Syncs the directory in the caller's thread. The replaced file stays open until
 * kw_database_close_replaced, which must be called before the next swap. */
int kw_database_swap(kw_database *db, bool *is_swapped);

/* Closes the file that the last swap has replaced, if any. This takes long, because the system frees all its pages. May
 * run in another thread, like kw_database_write. */
void kw_database_close_replaced(kw_database *db);

/* }====== */

#endif
