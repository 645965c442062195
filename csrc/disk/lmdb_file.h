/* SPDX-License-Identifier: MIT
 *
 * lmdb_file: an open LMDB file with the tables of a store. For database, lmdb_write and view.
 *
 *   records   revision (8 bytes), number in it (4), tombstone (1), big-endian  ->  the encoded KeyValue
 *   leases    id, big-endian, its sign bit inverted                            ->  seconds, big-endian
 *   rows      table, a zero byte, key                                        ->  bytes
 *   meta      names                                                            ->  numbers, big-endian
 *
 * Every value ends with a checksum of table, key and value, which readers check and leave out. Before a file is opened,
 * all of it is checked, see disk/lmdb_check.h. Later LMDB writes the file, and the tables are read by
 * disk/lmdb_pages.h, which relies on no number of a page; LMDB reads the few numbers of `meta`.
 *
 * Functions that return `int` return 0, an errno, or an error of LMDB (negative); kw_lmdb_error translates all of
 * them.
 */
#ifndef KW_DISK_LMDB_FILE_H
#define KW_DISK_LMDB_FILE_H

#pragma GCC visibility push(default)
#include <lmdb.h>
#pragma GCC visibility pop
#include <sys/types.h>

#include "base/big_endian.h"
#include "disk/database.h"
#include "disk/lmdb_pages.h"
#include "model/error.h"

/* Number of the format of the tables. */
#define KW_LMDB_FORMAT 1

#define KW_LMDB_RECORD_KEY 13 /* bytes */
#define KW_LMDB_CHECKSUM 4    /* bytes, big-endian */

/* Entries of meta: the format; and counts, 8 bytes each: the number of commits in the life of the store, and the
 * numbers of entries of the other tables, in their order. */
#define KW_LMDB_FORMAT_NAME "format"
#define KW_LMDB_COUNTS_NAME "counts"
#define KW_LMDB_COUNTS (8 * KW_LMDB_TABLES) /* bytes */

/* The tables. Checksums depend on these numbers. */
typedef enum kw_lmdb_table {
  KW_LMDB_META,
  KW_LMDB_RECORDS,
  KW_LMDB_LEASES,
  KW_LMDB_ROWS,
  KW_LMDB_TABLES /* number of tables */
} kw_lmdb_table;

extern const char *const kw_lmdb_names[KW_LMDB_TABLES];

enum { KW_LMDB_FREE, KW_LMDB_MAIN }; /* LMDB's own: of free pages, and of the tables above */

/* Limit of the pages that a write needs beside the leaves: meta pages, free list, and the paths from the roots. */
#define KW_LMDB_PAGES_PER_WRITE 16

/* An open file, reference-counted: after a defragmentation a view may still read the database's old file. */
typedef struct kw_lmdb_file {
  MDB_env *env;
  MDB_dbi tables[KW_LMDB_TABLES];
  const uint8_t *map; /* of the file, for reading */
  size_t map_bytes;
  size_t page; /* bytes of one page */
  int fd; /* another descriptor of the data file, for growing: a failed sync is told to LMDB's own, too */
  int refs; /* atomic */
} kw_lmdb_file;

/* Returns KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY, or KW_ERR_STORAGE for any other error. */
int kw_lmdb_error(int rc);

/* True if an error says that there is no room: on the disk, or in the map. */
bool kw_lmdb_is_no_room(int rc);

/* Makes a file with empty tables, unless there is one. The file is made under the name `partial`, and renamed when it
 * is complete. A crash may leave a file under that name; the caller removes it before it calls this function. Does
 * not sync the directory. */
int kw_lmdb_file_make(const char *directory, const char *name, const char *partial,
                      size_t map_bytes);

/* Opens a file, and makes its lock file. `must_check`: checks all of the file first, see kw_lmdb_check. Returns
 * 0, a result of kw_lmdb_check, or another error. *file becomes a new reference even then, but can only be released; it
 * is NULL if memory is short for it. */
int kw_lmdb_file_open(const char *directory, const char *name, const char *lock_name,
                      size_t map_bytes, bool must_check, kw_lmdb_file **file);

/* Renames a file of a directory. Returns 0 or an errno. */
int kw_lmdb_file_rename(const char *directory, const char *from, const char *to);

/* Adds a reference, and returns the file. Any thread may call this function. */
kw_lmdb_file *kw_lmdb_file_retain(kw_lmdb_file *file);

/* Gives up a reference; the last one closes the file. Any thread may call this function. */
void kw_lmdb_file_release(kw_lmdb_file *file);

/* Returns the descriptor of the data file, which stays LMDB's. */
int kw_lmdb_file_fd(const kw_lmdb_file *file);

/* Returns the bytes of the file up to the last page that was ever in use. */
off_t kw_lmdb_file_used(const kw_lmdb_file *file);

/* Returns the bytes that the file can have at most: those of its map. */
off_t kw_lmdb_file_limit(const kw_lmdb_file *file);

/* Returns the bytes of the pages that a transaction sees in use. */
int64_t kw_lmdb_file_in_use(const kw_lmdb_file *file, MDB_txn *txn);

/* Allocates the bytes [from, until) of a file. Returns 0, too, on a file system that cannot do that. */
int kw_lmdb_allocate(int fd, off_t from, off_t until);

/* {====== Keys and values ====== */

/* Checks a value, as it is stored in a table, and takes the checksum from its end. Returns false if the checksum is
 * wrong. */
bool kw_lmdb_value_check(kw_lmdb_table table, kw_slice key, kw_slice *value);

/* Puts a value with its checksum. `flags` are those of mdb_put. */
int kw_lmdb_put(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_table table, MDB_val key,
                kw_slice value, unsigned flags);

/* Finds the trees of all tables that a read transaction sees. They are valid as long as the transaction is. */
int kw_lmdb_trees(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_tree trees[KW_LMDB_TABLES]);

/* Writes the key of a record into `bytes`, and returns it. */
static inline MDB_val kw_lmdb_record_key(uint8_t bytes[KW_LMDB_RECORD_KEY], int64_t main,
                                         uint32_t sub, bool tombstone) {
  uint8_t *to = kw_big_endian_put32(kw_big_endian_put64(bytes, (uint64_t)main), sub);
  *to = tombstone;
  return (MDB_val){KW_LMDB_RECORD_KEY, bytes};
}

/* Reads a record from its key and its value as it is stored. Returns 1, or KW_ERR_CORRUPT. */
static inline int kw_lmdb_entry(kw_slice key, kw_slice value, kw_database_entry *entry) {
  const uint8_t *at = key.data;
  if (key.len != KW_LMDB_RECORD_KEY || !kw_lmdb_value_check(KW_LMDB_RECORDS, key, &value))
    return KW_ERR_CORRUPT;
  *entry =
      (kw_database_entry){.rev = {(int64_t)kw_big_endian_get64(at), kw_big_endian_get32(at + 8)},
                          .tombstone = at[12] != 0,
                          .record = value};
  return 1;
}

/* Writes the key of a lease into `bytes`, and returns it. Keys are in the order of ids, negative ones first. */
static inline MDB_val kw_lmdb_lease_key(uint8_t bytes[8], int64_t id) {
  kw_big_endian_put64(bytes, (uint64_t)id ^ UINT64_C(1) << 63);
  return (MDB_val){8, bytes};
}

/* Reads a lease from its key and its value, without the checksum. Returns 1, or KW_ERR_CORRUPT. */
static inline int kw_lmdb_lease(kw_slice key, kw_slice value, int64_t *id, int64_t *ttl) {
  if (key.len != 8 || value.len != 8) return KW_ERR_CORRUPT;
  *id = (int64_t)(kw_big_endian_get64(key.data) ^ UINT64_C(1) << 63);
  *ttl = (int64_t)kw_big_endian_get64(value.data);
  return 1;
}

/* Reads the identity of the store. This function and the next ones that read return
 * 0, MDB_CORRUPTED, or another error. */
int kw_lmdb_get_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity *identity);

/* Writes the identity of the store. */
int kw_lmdb_put_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity identity);

/* Reads the value of a key. Returns KW_OK, or KW_ERR_CORRUPT if it does not exist or cannot be read. */
int kw_lmdb_find(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice key,
                 kw_slice *value);

/* Reads the entry of a table after the key *key, or the first one if that is empty; *key becomes its key. Returns 1, 0
 * at the end, or KW_ERR_CORRUPT. */
int kw_lmdb_next_entry(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice *key,
                       kw_slice *value);

/* Writes the numbers of a commit group. */
int kw_lmdb_put_meta(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_meta *meta);

/* Marks the file as unfinished, see disk/lmdb_write.h; or removes the mark, if there is one. */
int kw_lmdb_set_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool is_unfinished);

/* Tells whether the file is marked as unfinished. */
int kw_lmdb_get_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool *is_unfinished);

/* Reads the numbers of the last commit group; those of an empty store if there was none. */
int kw_lmdb_get_meta(const kw_lmdb_file *file, MDB_txn *txn, kw_commit_meta *meta);

/* Writes the counts, and commits the transaction. Every write ends with this function. */
int kw_lmdb_commit(const kw_lmdb_file *file, MDB_txn *txn);

/* }====== */

#endif
