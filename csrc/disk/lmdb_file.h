/* SPDX-License-Identifier: MIT
 *
 * lmdb_file: an open LMDB file with the tables of a store, see disk/lmdb_table.h. For database, lmdb_write and view.
 *
 * Before a file is opened, all of it is checked, see disk/lmdb_check.h. Later LMDB writes the file, and reads the few
 * numbers of the table meta. The other tables are read by disk/lmdb_pages.h, which relies on no number of a page.
 *
 * Functions return 0, an errno, or an error of LMDB (negative), unless their contracts say otherwise; kw_lmdb_error
 * translates all of these.
 */
#ifndef KW_DISK_LMDB_FILE_H
#define KW_DISK_LMDB_FILE_H

#include <sys/types.h>

#include "disk/lmdb_table.h"

/* LMDB's own tables: the free pages, and the names of the store's tables. */
enum { KW_LMDB_FREE, KW_LMDB_MAIN };

/* The most pages that a write needs in addition to the leaves: meta pages, free list, and the paths from the roots. */
#define KW_LMDB_PAGES_PER_WRITE 16

/* An open file, reference-counted: after a defragmentation a view may still read the database's old file. */
typedef struct kw_lmdb_file {
  MDB_env *env;
  MDB_dbi tables[KW_LMDB_TABLES];
  const uint8_t *map; /* of the file, for reading */
  size_t map_bytes;
  size_t page; /* bytes of one page */
  int fd; /* a second descriptor of the data file, for growing it: a failed sync is reported once per descriptor, and
           * LMDB's own one must report it to LMDB */
  int refs; /* atomic */
} kw_lmdb_file;

/* Translates a result: returns KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY, or KW_ERR_STORAGE for any other error. */
int kw_lmdb_error(int rc);

/* True if an error means that there is no space: on the disk, or in the map. */
bool kw_lmdb_is_no_room(int rc);

/* Makes a file with empty tables, unless there is one. The file is made under the name `partial`, and renamed when it
 * is complete. A failure or a crash may leave a file under that name; the caller removes it before it calls this
 * function. Does not sync the directory. */
int kw_lmdb_file_make(const char *directory, const char *name, const char *partial,
                      size_t map_bytes);

/* Opens a file, and makes its lock file. `must_check`: first checks the whole file, see kw_lmdb_check. Returns 0, a
 * result of kw_lmdb_check, or another error. *file becomes a new reference even after an error, but can then only be
 * released; it is NULL if memory is short. */
int kw_lmdb_file_open(const char *directory, const char *name, const char *lock_name,
                      size_t map_bytes, bool must_check, kw_lmdb_file **file);

/* Renames a file of a directory. Returns 0 or an errno. */
int kw_lmdb_file_rename(const char *directory, const char *from, const char *to);

/* Adds a reference, and returns the file. Any thread may call this function. */
kw_lmdb_file *kw_lmdb_file_retain(kw_lmdb_file *file);

/* Releases a reference; releasing the last one closes the file. Any thread may call this function. */
void kw_lmdb_file_release(kw_lmdb_file *file);

/* Returns the descriptor of the data file, which belongs to LMDB. */
int kw_lmdb_file_fd(const kw_lmdb_file *file);

/* Returns the size of the file up to the last page that was ever in use. */
off_t kw_lmdb_file_used(const kw_lmdb_file *file);

/* Returns the largest possible size of the file: the size of its map. */
off_t kw_lmdb_file_limit(const kw_lmdb_file *file);

/* Returns the bytes of the pages that a transaction sees in use. */
int64_t kw_lmdb_file_in_use(const kw_lmdb_file *file, MDB_txn *txn);

/* Allocates the bytes [from, until) of a file. Also returns 0 on a file system that cannot allocate. */
int kw_lmdb_allocate(int fd, off_t from, off_t until);

/* {====== Keys and values ====== */

/* Puts a value with its checksum. `flags` are those of mdb_put. */
int kw_lmdb_put(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_table table, MDB_val key,
                kw_slice value, unsigned flags);

/* Finds the trees of all tables that a read transaction sees. They are valid as long as the transaction is. */
int kw_lmdb_trees(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_tree trees[KW_LMDB_TABLES]);

/* Reads the identity of the store. */
int kw_lmdb_get_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity *identity);

/* Writes the identity of the store. */
int kw_lmdb_put_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity identity);

/* Writes the numbers of a commit group. */
int kw_lmdb_put_meta(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_meta *meta);

/* Marks the file as unfinished, see disk/lmdb_write.h; or removes the mark, if there is one. */
int kw_lmdb_set_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool is_unfinished);

/* Reads whether the file is marked as unfinished. */
int kw_lmdb_get_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool *is_unfinished);

/* Reads the numbers of the last commit group; those of an empty store if there was none. */
int kw_lmdb_get_meta(const kw_lmdb_file *file, MDB_txn *txn, kw_commit_meta *meta);

/* Writes the counts, and commits the transaction; after an error it is aborted. Every write ends with this function. */
int kw_lmdb_commit(const kw_lmdb_file *file, MDB_txn *txn);

/* }====== */

#endif
