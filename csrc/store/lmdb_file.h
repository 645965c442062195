/* SPDX-License-Identifier: MIT
 *
 * lmdb_file: an open LMDB file with the tables of a store. For database, lmdb_write and view.
 *
 *   records   revision (8 bytes), number in it (4), tombstone (1), big-endian  ->  the encoded KeyValue
 *   leases    id, big-endian, its sign bit inverted                            ->  seconds, big-endian
 *   kept      names of rows, see store/rows.h (field `rows` below)             ->  bytes
 *   meta      names                                                            ->  numbers, big-endian
 *
 * Functions that return `int` return 0, an errno, or an error of LMDB (negative); kw_lmdb_error translates all of
 * them.
 */
#ifndef KW_STORE_LMDB_FILE_H
#define KW_STORE_LMDB_FILE_H

#pragma GCC visibility push(default)
#include <lmdb.h>
#pragma GCC visibility pop
#include <sys/types.h>

#include "base/big_endian.h"
#include "store/database.h"

/* The file has lost its end. This is neither an errno nor an error of LMDB. */
#define KW_LMDB_INCOMPLETE (-1)

/* Formats of the tables. A store has the second one from the first time on that it is opened with a journal: a version
 * of keywatch that knows no journal must not open it. */
#define KW_LMDB_FORMAT 1
#define KW_LMDB_FORMAT_JOURNAL 2

#define KW_LMDB_FREE 0        /* LMDB's own table of free pages */
#define KW_LMDB_RECORD_KEY 13 /* bytes */

/* Limit of the pages that a write needs beside the leaves: meta pages, free list, and the paths from the roots. */
#define KW_LMDB_PAGES_PER_WRITE 16

/* An open file, reference-counted: after a defragmentation a view may still read the database's old file. */
typedef struct kw_lmdb_file {
  MDB_env *env;
  MDB_dbi records;
  MDB_dbi leases;
  MDB_dbi rows;
  MDB_dbi meta;
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

/* Checks the numbers that LMDB relies on without checking them: with false ones it would read outside of its map, and
 * crash. Returns 0, KW_LMDB_INCOMPLETE, MDB_CORRUPTED or an errno. */
int kw_lmdb_file_check(const char *directory, const char *name);

/* Opens a file, and makes its lock file. *format becomes the number of its format, or -1 if the file has none; it is
 * left alone if opening fails before the format is read. The format is not checked. Returns 0; MDB_NOTFOUND if the
 * file does not have our tables; or another error. *file becomes a new reference even then, but can only be released;
 * it is NULL if memory is short for it. */
int kw_lmdb_file_open(const char *directory, const char *name, const char *lock_name,
                      size_t map_bytes, kw_lmdb_file **file, int64_t *format);

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

/* Tells the system that the bytes [from, until) will be read soon. It reads them into the page cache in the background.
 * The map itself is read without read-ahead, since most reads of an open store are of single records. */
void kw_lmdb_file_read_ahead(const kw_lmdb_file *file, off_t from, off_t until);

/* Allocates the bytes [from, until) of a file. Returns 0, too, on a file system that cannot do that. */
int kw_lmdb_allocate(int fd, off_t from, off_t until);

/* {====== Keys and values ====== */

/* Writes the key of a record into `bytes`, and returns it. */
static inline MDB_val kw_lmdb_record_key(uint8_t bytes[KW_LMDB_RECORD_KEY], int64_t main,
                                         uint32_t sub, bool tombstone) {
  uint8_t *to = kw_big_endian_put32(kw_big_endian_put64(bytes, (uint64_t)main), sub);
  *to = tombstone;
  return (MDB_val){KW_LMDB_RECORD_KEY, bytes};
}

/* Returns a record from its key and value. */
static inline kw_database_entry kw_lmdb_entry(const MDB_val *key, const MDB_val *value) {
  const uint8_t *at = key->mv_data;
  return (kw_database_entry){.rev = {(int64_t)kw_big_endian_get64(at), kw_big_endian_get32(at + 8)},
                             .tombstone = at[12] != 0,
                             .record = kw_slice_of(value->mv_data, value->mv_size)};
}

/* Writes the key of a lease into `bytes`, and returns it. Keys are in the order of ids, negative ones first. */
static inline MDB_val kw_lmdb_lease_key(uint8_t bytes[8], int64_t id) {
  kw_big_endian_put64(bytes, (uint64_t)id ^ UINT64_C(1) << 63);
  return (MDB_val){8, bytes};
}

/* Returns the id of a lease from its key. */
static inline int64_t kw_lmdb_lease_id(const MDB_val *key) {
  return (int64_t)(kw_big_endian_get64(key->mv_data) ^ UINT64_C(1) << 63);
}

/* Reads the identity of the store; all zero if it never had a journal. */
kw_database_identity kw_lmdb_get_identity(const kw_lmdb_file *file, MDB_txn *txn);

/* Writes the identity of the store, and that it may have a journal. */
int kw_lmdb_put_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity identity);

/* Reads the first row whose name is above *name; *name becomes the name of that row. A walk begins with an empty name.
 * Returns 0, MDB_NOTFOUND at the end, or another error. */
int kw_lmdb_next_row(const kw_lmdb_file *file, MDB_txn *txn, kw_slice *name, kw_slice *bytes);

/* Writes the numbers of a commit group. */
int kw_lmdb_put_meta(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_meta *meta);

/* Marks the file as unfinished, see store/lmdb_write.h; or removes the mark, if there is one. */
int kw_lmdb_set_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool is_unfinished);

/* True if the file is marked as unfinished. */
bool kw_lmdb_is_unfinished(const kw_lmdb_file *file, MDB_txn *txn);

/* Reads the numbers of the last commit group; those of an empty store if there was none. */
kw_commit_meta kw_lmdb_get_meta(const kw_lmdb_file *file, MDB_txn *txn);

/* }====== */

#endif
