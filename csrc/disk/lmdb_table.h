/* SPDX-License-Identifier: MIT
 *
 * lmdb_table: the tables of a store in an LMDB file.
 *
 *   records   revision (8 bytes), number in it (4), tombstone (1), big-endian  ->  the encoded KeyValue
 *   leases    id, big-endian, its sign bit inverted                            ->  seconds, big-endian
 *   rows      table, a zero byte, key                                          ->  bytes
 *   meta      names                                                            ->  numbers, big-endian
 *
 * Every value ends with a checksum of table, key and value, which readers check and leave out.
 */
#ifndef KW_DISK_LMDB_TABLE_H
#define KW_DISK_LMDB_TABLE_H

#pragma GCC visibility push(default)
#include <lmdb.h>
#pragma GCC visibility pop

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

/* Returns the checksum of a value. */
uint32_t kw_lmdb_checksum(kw_lmdb_table table, kw_slice key, kw_slice value);

/* Checks a value, as it is stored in a table, and removes the checksum from its end. Returns false if the checksum is
 * wrong or missing. */
bool kw_lmdb_value_check(kw_lmdb_table table, kw_slice key, kw_slice *value);

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

/* Reads the value of a key. Returns KW_OK, or KW_ERR_CORRUPT if it does not exist or cannot be read. */
int kw_lmdb_find(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice key,
                 kw_slice *value);

/* Reads the entry of a table after the key *key, or the first entry if *key is empty; *key becomes the key of the
 * entry. Returns 1, 0 at the end, or KW_ERR_CORRUPT. */
int kw_lmdb_next_entry(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice *key,
                       kw_slice *value);

#endif
