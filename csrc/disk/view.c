/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "disk/view.h"

#include "base/mem.h"
#include "disk/lmdb_file.h"
#include "model/error.h"

struct kw_view {
  kw_lmdb_file *file;
  MDB_txn *txn;
  kw_lmdb_tree trees[KW_LMDB_TABLES];
  kw_lmdb_cursor records;
  bool has_records; /* the walk of records has begun */
  kw_commit_meta meta;
  int64_t lease;    /* the last id that the walk of leases has returned */
  bool is_negative; /* the walk has reached the negative ids, which are last */
};

int kw_view_open(const kw_database *db, kw_view **result) {
  kw_view *view = kw_alloc_zeroed(sizeof *view);
  if (view == NULL) return KW_ERR_NO_MEMORY;
  const kw_lmdb_file *file = view->file = kw_lmdb_file_retain(kw_database_file(db));
  int rc = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &view->txn);
  if (rc == 0) rc = kw_lmdb_trees(file, view->txn, view->trees);
  if (rc == 0) rc = kw_lmdb_get_meta(file, view->txn, &view->meta);
  if (rc != 0) {
    kw_view_close(view);
    if (rc == MDB_CORRUPTED) return KW_ERR_CORRUPT;
    return rc == ENOMEM ? KW_ERR_NO_MEMORY : kw_error_storage(rc);
  }
  *result = view;
  return KW_OK;
}

void kw_view_close(kw_view *view) {
  if (view->txn != NULL) mdb_txn_abort(view->txn);
  kw_lmdb_file_release(view->file);
  kw_free(view);
}

kw_commit_meta kw_view_meta(const kw_view *view) {
  return view->meta;
}

int kw_view_next(kw_view *view, kw_database_entry *entry) {
  kw_slice value;
  int rc = view->has_records ? kw_lmdb_cursor_next(&view->records, &value)
                             : kw_lmdb_cursor_seek(&view->records, &view->trees[KW_LMDB_RECORDS],
                                                   (kw_slice){0}, &value);
  view->has_records = true;
  if (rc > 0) rc = kw_lmdb_entry(view->records.key, value, entry);
  if (rc <= 0) return rc;
  return entry->rev.main <= view->meta.revision; /* the group of a later record is incomplete */
}

int kw_view_next_row(kw_view *view, kw_slice *name, kw_slice *bytes) {
  return kw_lmdb_next_entry(view->trees, KW_LMDB_ROWS, name, bytes);
}

/* First the ids above 0, since no lease has the id 0; then, from the beginning of the table, the negative ids. */
int kw_view_next_lease(kw_view *view, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  kw_slice value, key = kw_slice_of(kw_lmdb_lease_key(bytes, view->lease).mv_data, 8);
  int rc = kw_lmdb_next_entry(view->trees, KW_LMDB_LEASES, &key, &value);
  if (rc == 0 && !view->is_negative) {
    view->is_negative = true;
    key.len = 0;
    rc = kw_lmdb_next_entry(view->trees, KW_LMDB_LEASES, &key, &value);
  }
  if (rc > 0) rc = kw_lmdb_lease(key, value, id, ttl);
  if (rc <= 0) return rc;
  view->lease = *id;
  return view->is_negative && *id >= 0 ? 0 : 1;
}
