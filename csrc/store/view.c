/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "store/view.h"

#include "base/mem.h"
#include "model/error.h"
#include "store/lmdb_file.h"

struct kw_view {
  kw_lmdb_file *file;
  MDB_txn *txn;
  MDB_cursor *records;
  MDB_cursor *leases;
  kw_commit_meta meta;
  bool has_leases;  /* the walk of leases has begun */
  bool is_negative; /* the walk has come to the negative ids, which come last */
};

int kw_view_open(const kw_database *db, kw_view **result) {
  kw_view *view = kw_alloc_zeroed(sizeof *view);
  if (view == NULL) return KW_ERR_NO_MEMORY;
  const kw_lmdb_file *file = view->file = kw_lmdb_file_retain(kw_database_file(db));
  int rc = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &view->txn);
  if (rc == 0) rc = mdb_cursor_open(view->txn, file->records, &view->records);
  if (rc == 0) rc = mdb_cursor_open(view->txn, file->leases, &view->leases);
  if (rc != 0) {
    kw_view_close(view);
    return rc == ENOMEM ? KW_ERR_NO_MEMORY : kw_error_storage(rc);
  }
  view->meta = kw_lmdb_get_meta(file, view->txn);
  *result = view;
  return KW_OK;
}

void kw_view_close(kw_view *view) {
  if (view->leases != NULL) mdb_cursor_close(view->leases);
  if (view->records != NULL) mdb_cursor_close(view->records);
  if (view->txn != NULL) mdb_txn_abort(view->txn);
  kw_lmdb_file_release(view->file);
  kw_free(view);
}

kw_commit_meta kw_view_meta(const kw_view *view) {
  return view->meta;
}

int kw_view_next(kw_view *view, kw_database_entry *entry) {
  MDB_val key, value;
  int rc = mdb_cursor_get(view->records, &key, &value, MDB_NEXT);
  if (rc == MDB_NOTFOUND) return 0;
  if (rc != 0 || key.mv_size != KW_LMDB_RECORD_KEY) return KW_ERR_CORRUPT;
  *entry = kw_lmdb_entry(&key, &value);
  return entry->rev.main <=
         view->meta.revision; /* others are parts of a group that is being written */
}

int kw_view_next_row(kw_view *view, kw_slice *name, kw_slice *bytes) {
  int rc = kw_lmdb_next_row(view->file, view->txn, name, bytes);
  if (rc == MDB_NOTFOUND) return 0;
  return rc == 0 ? 1 : KW_ERR_CORRUPT;
}

/* First the ids that are not negative; then, from the beginning of the table, those that are. */
int kw_view_next_lease(kw_view *view, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  MDB_val key = kw_lmdb_lease_key(bytes, 0), value;
  int rc = mdb_cursor_get(view->leases, &key, &value, view->has_leases ? MDB_NEXT : MDB_SET_RANGE);
  view->has_leases = true;
  if (rc == MDB_NOTFOUND && !view->is_negative) {
    view->is_negative = true;
    rc = mdb_cursor_get(view->leases, &key, &value, MDB_FIRST);
  }
  if (rc == MDB_NOTFOUND) return 0;
  if (rc != 0 || key.mv_size != 8 || value.mv_size != 8) return KW_ERR_CORRUPT;
  *id = kw_lmdb_lease_id(&key);
  *ttl = (int64_t)kw_big_endian_get64(value.mv_data);
  return view->is_negative && *id >= 0 ? 0 : 1;
}
