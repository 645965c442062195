/* SPDX-License-Identifier: MIT */
#include "disk/lmdb_table.h"

#include "base/crc32c.h"

const char *const kw_lmdb_names[KW_LMDB_TABLES] = {"meta", "records", "leases", "rows"};

uint32_t kw_lmdb_checksum(kw_lmdb_table table, kw_slice key, kw_slice value) {
  return kw_crc32c(kw_crc32c(table, key), value);
}

bool kw_lmdb_value_check(kw_lmdb_table table, kw_slice key, kw_slice *value) {
  if (value->len < KW_LMDB_CHECKSUM) return false;
  value->len -= KW_LMDB_CHECKSUM;
  return kw_lmdb_checksum(table, key, *value) == kw_big_endian_get32(value->data + value->len);
}

int kw_lmdb_find(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice key,
                 kw_slice *value) {
  kw_lmdb_cursor cursor;
  int rc = kw_lmdb_cursor_seek(&cursor, &trees[table], key, value);
  bool ok = rc > 0 && kw_slice_equal(cursor.key, key) && kw_lmdb_value_check(table, key, value);
  return ok ? KW_OK : KW_ERR_CORRUPT;
}

int kw_lmdb_next_entry(const kw_lmdb_tree trees[KW_LMDB_TABLES], kw_lmdb_table table, kw_slice *key,
                       kw_slice *value) {
  kw_lmdb_cursor cursor;
  int rc = kw_lmdb_cursor_seek(&cursor, &trees[table], *key, value);
  if (rc > 0 && kw_slice_equal(cursor.key, *key)) rc = kw_lmdb_cursor_next(&cursor, value);
  if (rc <= 0) return rc;
  *key = cursor.key;
  return kw_lmdb_value_check(table, *key, value) ? 1 : KW_ERR_CORRUPT;
}
