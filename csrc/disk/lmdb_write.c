/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "disk/lmdb_write.h"

#include "base/mem.h"
#include "model/error.h"

#define GROWN_AHEAD 2048      /* pages that the file is grown beyond need */
#define KEPT_FROM_PUTS 1024   /* how many of them puts leave to deletes and removals */
#define KEPT_FROM_DELETES 512 /* how many of them deletes leave to removals, which free space */
#define RECORD_OVERHEAD 64    /* bytes that LMDB needs for a record's key and its node in a page */
#define LARGE_SHARE 16        /* of a large record, one byte in 16 counts, see part_bytes */

/* The approximate bytes of records in one part, and the number of records that one transaction removes. LMDB keeps
 * memory for that many pages; each part costs one more flush. */
#define PART_BYTES KW_LIMIT(1 << 20, 1024)
#define REMOVED_AT_ONCE KW_LIMIT(10000, 4)

/* Removes an entry, which need not exist. */
static int remove_entry(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_table table, MDB_val key) {
  int rc = mdb_del(txn, file->tables[table], &key, NULL);
  return rc == MDB_NOTFOUND ? 0 : rc;
}

static int write_change(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_change *c) {
  uint8_t bytes[KW_LMDB_RECORD_KEY], ttl[8];
  MDB_val name;
  switch (c->kind) {
    case KW_COMMIT_PUT:
      return kw_lmdb_put(file, txn, KW_LMDB_RECORDS,
                         kw_lmdb_record_key(bytes, c->main, c->sub, c->tombstone),
                         kw_blob_slice(c->record), MDB_APPEND);
    case KW_COMMIT_REMOVE:
      return remove_entry(file, txn, KW_LMDB_RECORDS,
                          kw_lmdb_record_key(bytes, c->main, c->sub, c->tombstone));
    case KW_COMMIT_PUT_LEASE:
      kw_big_endian_put64(ttl, (uint64_t)c->ttl);
      return kw_lmdb_put(file, txn, KW_LMDB_LEASES, kw_lmdb_lease_key(bytes, c->lease),
                         kw_slice_of(ttl, 8), 0);
    case KW_COMMIT_REMOVE_LEASE:
      return remove_entry(file, txn, KW_LMDB_LEASES, kw_lmdb_lease_key(bytes, c->lease));
    case KW_COMMIT_PUT_ROW:
      name = (MDB_val){c->name->len, (void *)c->name->bytes};
      return kw_lmdb_put(file, txn, KW_LMDB_ROWS, name, kw_blob_slice(c->row), 0);
    case KW_COMMIT_REMOVE_ROW:
      name = (MDB_val){c->name->len, (void *)c->name->bytes};
      return remove_entry(file, txn, KW_LMDB_ROWS, name);
    case KW_COMMIT_SPAN: break; /* a walk does not return it */
  }
  return EINVAL;
}

static size_t leaves_of(MDB_txn *txn, MDB_dbi dbi) {
  MDB_stat stat;
  return mdb_stat(txn, dbi, &stat) == 0 ? stat.ms_leaf_pages : SIZE_MAX / 4; /* callers add them */
}

/* Returns the bytes of a record that count for the size of a part. A large record has pages of its own, whose memory
 * LMDB frees after the commit. */
static size_t part_bytes(const kw_lmdb_file *file, const kw_commit_change *c) {
  size_t len = c->record->len;
  return RECORD_OVERHEAD + (len < file->page / 2 ? len : len / LARGE_SHARE);
}

/* Returns the maximum number of parts that this many bytes need, including the last transaction. */
static size_t parts_of(size_t bytes) {
  return bytes / PART_BYTES + 1;
}

/* Returns the number of parts of a group, including the last transaction. */
static size_t count_parts(const kw_lmdb_file *file, const kw_commit_group *group) {
  size_t bytes = 0;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;) {
    if (c->kind == KW_COMMIT_PUT) bytes += part_bytes(file, c);
  }
  return parts_of(bytes);
}

size_t kw_lmdb_leaves(const kw_lmdb_file *file, MDB_txn *txn) {
  size_t n = 0;
  for (int i = KW_LMDB_META + 1; i < KW_LMDB_TABLES; i++) n += leaves_of(txn, file->tables[i]);
  return n;
}

/* New entries fill new pages at least by half. Each change, except the put of a record, may also touch an existing
 * page, but together they touch no more pages than exist. */
size_t kw_lmdb_need(const kw_lmdb_file *file, size_t leaves, const kw_commit_group *group) {
  size_t appended = 0, others = 0;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;) {
    if (c->kind == KW_COMMIT_PUT) {
      appended += 2 * (RECORD_OVERHEAD + (size_t)c->record->len);
    } else {
      others++;
    }
    if (c->kind == KW_COMMIT_PUT_LEASE) appended += 2 * RECORD_OVERHEAD;
    if (c->kind == KW_COMMIT_PUT_ROW)
      appended += 2 * (RECORD_OVERHEAD + (size_t)c->name->len + (size_t)c->row->len);
  }
  return appended + 2 * kw_min_size(others, leaves) * file->page;
}

/* Returns the bytes that transactions need in addition to their changes. */
static size_t bytes_beside(const kw_lmdb_file *file, size_t parts) {
  return KW_LMDB_PAGES_PER_WRITE * parts * file->page;
}

/* Returns the number of pages that a group has to leave free. */
static size_t pages_to_leave(const kw_commit_group *group) {
  size_t most = 0;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;) {
    bool is_put = c->kind == KW_COMMIT_PUT && !c->tombstone;
    if (is_put || c->kind == KW_COMMIT_PUT_LEASE || c->kind == KW_COMMIT_PUT_ROW)
      return KEPT_FROM_PUTS;
    if (c->kind == KW_COMMIT_PUT) most = KEPT_FROM_DELETES;
  }
  return most;
}

/* The state of a write. */
typedef struct writing {
  const kw_lmdb_file *file;
  const kw_commit_group *group;
  size_t seen;     /* transaction of the database's reader */
  bool is_durable; /* the journal has the group */
  MDB_txn *txn;
  kw_commit_walk part; /* after the changes whose records are in committed parts */
  size_t parted;       /* number of these changes */
  off_t most;          /* most bytes that the write may need */
  bool is_short;       /* the bytes could not be allocated: the free pages must be enough */
} writing;

static int begin(writing *w) {
  return mdb_txn_begin(w->file->env, NULL, 0, &w->txn);
}

/* {====== Room ====== */

/* Returns the bytes of the free pages that the reader does not see. LMDB keeps, for each transaction, a list of the
 * pages that it has freed: their number, then the pages. Only a read transaction can walk these lists. */
static off_t free_bytes(const writing *w) {
  size_t pages = 0, n, id;
  MDB_txn *txn;
  MDB_cursor *cursor;
  MDB_val key, list;
  if (mdb_txn_begin(w->file->env, NULL, MDB_RDONLY, &txn) != 0) return 0;
  if (mdb_cursor_open(txn, KW_LMDB_FREE, &cursor) == 0) {
    while (mdb_cursor_get(cursor, &key, &list, MDB_NEXT) == 0 && key.mv_size == sizeof id &&
           list.mv_size >= sizeof n) {
      memcpy(&id, key.mv_data, sizeof id);
      memcpy(&n, list.mv_data, sizeof n);
      if (id < w->seen) pages += n;
    }
    mdb_cursor_close(cursor);
  }
  mdb_txn_abort(txn);
  return (off_t)(pages * w->file->page);
}

/* Returns the bytes that can be written on a full disk: the end of the file that was never used, and free pages. The
 * true number is smaller if several pages must be adjacent, or if a view sees free pages. */
static off_t room_of(const writing *w, off_t size) {
  off_t ahead = size - kw_lmdb_file_used(w->file);
  return (ahead > 0 ? ahead : 0) + free_bytes(w);
}

/* Allocates `least` bytes after the used ones, and more if there is space; sets *size to the previous size of the
 * file. */
static int grow(const kw_lmdb_file *file, off_t least, off_t *size) {
  struct stat st;
  if (fstat(file->fd, &st) < 0) return errno;
  *size = st.st_size;
  off_t end = kw_lmdb_file_used(file) + least;
  if (st.st_size >= end) return 0;
  int rc = kw_lmdb_allocate(file->fd, st.st_size, end + (off_t)(GROWN_AHEAD * file->page));
  return kw_lmdb_is_no_room(rc) ? kw_lmdb_allocate(file->fd, st.st_size, end) : rc;
}

/* True if the file is larger than `size`. */
static bool has_grown(const kw_lmdb_file *file, off_t size) {
  struct stat st;
  return fstat(file->fd, &st) == 0 && st.st_size > size;
}

/* Syncs the grown file: the space is still there after a crash. */
int kw_lmdb_reserve(const kw_lmdb_file *file, const kw_commit_group *group, size_t need) {
  off_t size, used = kw_lmdb_file_used(file);
  off_t least =
      (off_t)(need + bytes_beside(file, parts_of(need) + 1) + pages_to_leave(group) * file->page);
  if (used + least > kw_lmdb_file_limit(file)) return MDB_MAP_FULL;
  int rc = grow(file, least, &size);
  if (rc != 0 || size >= used + least || !has_grown(file, size)) return rc;
  return fdatasync(file->fd) < 0 ? errno : 0;
}

/* Allocates all bytes that the write may need, so that a full disk is noticed here, before anything has happened. On a
 * full disk free pages may be enough. A write that need not leave pages tries them in any case: the commit shows
 * whether they are enough. */
static int grow_ahead(writing *w) {
  size_t to_leave = w->is_durable ? 0 : pages_to_leave(w->group);
  off_t size, least = w->most + (off_t)(to_leave * w->file->page);
  int rc = grow(w->file, least, &size);
  if (!kw_lmdb_is_no_room(rc)) return rc;
  w->is_short = true;
  return to_leave == 0 || room_of(w, size) >= least ? 0 : rc;
}

/* True if the file system has less space than the write may need. */
static bool is_full(const writing *w) {
  struct statvfs fs;
  return fstatvfs(kw_lmdb_file_fd(w->file), &fs) == 0 &&
         (uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)w->most;
}

/* }====== */

/* LMDB first writes pages that nothing refers to yet, and then the meta page that refers to them. If the first write
 * fails, nothing has happened. If the second one fails, LMDB takes no more writes. LMDB reports EIO for a short write,
 * which a full disk may cause. */
static int commit(writing *w) {
  MDB_txn *next;
  int rc = kw_lmdb_commit(w->file, w->txn);
  if (rc == 0) return KW_OK;
  if (mdb_txn_begin(w->file->env, NULL, 0, &next) != 0) return kw_error_storage(rc);
  mdb_txn_abort(next);
  return rc == EIO && (w->is_short || is_full(w)) ? KW_ERR_NO_SPACE : kw_lmdb_error(rc);
}

/* Writes everything except the records that are in parts already. */
static int write_changes(writing *w) {
  const kw_commit_group *group = w->group;
  int rc = w->parted > 0 ? kw_lmdb_set_unfinished(w->file, w->txn, false) : 0;
  kw_commit_walk walk = {.group = group};
  for (size_t i = 0; i < group->n && rc == 0; i++) {
    const kw_commit_change *c = kw_commit_walk_next(&walk);
    if (i >= w->parted || c->kind != KW_COMMIT_PUT) rc = write_change(w->file, w->txn, c);
  }
  return rc == 0 ? kw_lmdb_put_meta(w->file, w->txn, &group->meta) : rc;
}

/* Finds the end of the next part, which has the changes up to *end. Returns false if the last transaction can have all
 * remaining changes. */
static bool find_part(const writing *w, size_t *end) {
  size_t bytes = 0;
  kw_commit_walk walk = w->part;
  for (size_t i = w->parted; i < w->group->n; i++) {
    const kw_commit_change *c = kw_commit_walk_next(&walk);
    if (c->kind == KW_COMMIT_PUT) bytes += part_bytes(w->file, c);
    *end = i + 1;
    if (bytes >= PART_BYTES) return true;
  }
  return false;
}

/* Writes a part into the transaction. */
static int write_part(writing *w, size_t end) {
  int rc = w->parted == 0 ? kw_lmdb_set_unfinished(w->file, w->txn, true) : 0;
  for (size_t i = w->parted; i < end && rc == 0; i++) {
    const kw_commit_change *c = kw_commit_walk_next(&w->part);
    if (c->kind == KW_COMMIT_PUT) rc = write_change(w->file, w->txn, c);
  }
  return rc;
}

/* Writes and commits all parts but the last. Returns KW_OK, with a transaction for the last part, or an error, without
 * a transaction. */
static int write_parts(writing *w) {
  size_t end;
  while (find_part(w, &end)) {
    int rc = write_part(w, end);
    if (rc != 0) {
      mdb_txn_abort(w->txn);
      return kw_lmdb_error(rc);
    }
    rc = commit(w);
    if (rc != KW_OK) return rc;
    w->parted = end;
    rc = begin(w);
    if (rc != 0) return kw_lmdb_error(rc);
  }
  return KW_OK;
}

static int write_last(writing *w) {
  int rc = write_changes(w);
  if (rc == 0) return commit(w);
  mdb_txn_abort(w->txn);
  return kw_lmdb_error(rc);
}

static int write_all(writing *w) {
  const kw_lmdb_file *file = w->file;
  int rc = begin(w);
  if (rc != 0) return kw_lmdb_error(rc);
  w->most = (off_t)(kw_lmdb_need(file, kw_lmdb_leaves(file, w->txn), w->group) +
                    bytes_beside(file, count_parts(file, w->group)));
  rc = grow_ahead(w);
  if (rc != 0) {
    mdb_txn_abort(w->txn);
    return kw_lmdb_error(rc);
  }
  rc = write_parts(w);
  return rc == KW_OK ? write_last(w) : rc;
}

int kw_lmdb_write_identity(const kw_lmdb_file *file, kw_database_identity identity) {
  const kw_commit_group nothing = {0};
  MDB_txn *txn;
  int rc = kw_lmdb_reserve(file, &nothing, 0);
  if (rc == 0) rc = mdb_txn_begin(file->env, NULL, 0, &txn);
  if (rc != 0) return rc;
  rc = kw_lmdb_put_identity(file, txn, identity);
  if (rc == 0) return kw_lmdb_commit(file, txn);
  mdb_txn_abort(txn);
  return rc;
}

/* {====== Unfinished groups ====== */

/* Removes up to REMOVED_AT_ONCE records beyond the durable revision, from the last one backwards. *is_done becomes true
 * if none is left. */
static int remove_last(const kw_lmdb_file *file, MDB_txn *txn, bool *is_done) {
  kw_commit_meta durable;
  MDB_cursor *cursor;
  MDB_val key, value;
  int rc = kw_lmdb_get_meta(file, txn, &durable);
  if (rc == 0) rc = mdb_cursor_open(txn, file->tables[KW_LMDB_RECORDS], &cursor);
  if (rc != 0) return rc;
  for (int n = 0; n < REMOVED_AT_ONCE && rc == 0 && !*is_done; n++) {
    rc = mdb_cursor_get(cursor, &key, &value, MDB_LAST);
    *is_done = rc == MDB_NOTFOUND ||
               (rc == 0 && (key.mv_size != KW_LMDB_RECORD_KEY ||
                            (int64_t)kw_big_endian_get64(key.mv_data) <= durable.revision));
    if (rc == 0 && !*is_done) rc = mdb_cursor_del(cursor, 0);
  }
  mdb_cursor_close(cursor);
  return rc == MDB_NOTFOUND ? 0 : rc;
}

int kw_lmdb_remove_unfinished(const kw_lmdb_file *file) {
  MDB_txn *txn;
  for (bool is_done = false; !is_done;) {
    int rc = mdb_txn_begin(file->env, NULL, 0, &txn);
    if (rc != 0) return rc;
    bool is_unfinished;
    rc = kw_lmdb_get_unfinished(file, txn, &is_unfinished);
    if (is_unfinished) rc = remove_last(file, txn, &is_done);
    if (rc == 0 && is_done) rc = kw_lmdb_set_unfinished(file, txn, false);
    if (rc != 0 || !is_unfinished) {
      mdb_txn_abort(txn);
      return rc;
    }
    rc = kw_lmdb_commit(file, txn);
    if (rc != 0) return rc;
  }
  return 0;
}

/* }====== */

/* {====== On a full disk ====== */

/* Removes up to `most` of the records that the group removes; *removed becomes their number. */
static int remove_some(writing *w, size_t most, size_t *removed) {
  const kw_commit_group *group = w->group;
  uint8_t bytes[KW_LMDB_RECORD_KEY];
  int rc = 0;
  *removed = 0;
  for (size_t i = 0; i < group->n_items && *removed < most && (rc == 0 || rc == MDB_NOTFOUND);
       i++) {
    const kw_commit_change *c = &group->items[i];
    if (c->kind != KW_COMMIT_REMOVE) continue;
    MDB_val key = kw_lmdb_record_key(bytes, c->main, c->sub, c->tombstone);
    rc = mdb_del(w->txn, w->file->tables[KW_LMDB_RECORDS], &key, NULL);
    *removed += rc == 0;
  }
  return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Removes as many records as there is space for: a removal may need two pages. The second write after this one can
 * reuse the pages of these records. Returns KW_ERR_STORAGE if LMDB takes no more writes, otherwise KW_ERR_NO_SPACE. */
static int make_room(writing *w) {
  struct stat st;
  size_t removed;
  if (fstat(kw_lmdb_file_fd(w->file), &st) < 0) return KW_ERR_NO_SPACE;
  size_t pages = (size_t)room_of(w, st.st_size) / w->file->page;
  if (pages <= KW_LMDB_PAGES_PER_WRITE || begin(w) != 0) return KW_ERR_NO_SPACE;
  w->is_short = true;
  int rc = remove_some(w, (pages - KW_LMDB_PAGES_PER_WRITE) / 2, &removed);
  if (rc == 0 && removed > 0) return commit(w) == KW_ERR_STORAGE ? KW_ERR_STORAGE : KW_ERR_NO_SPACE;
  mdb_txn_abort(w->txn);
  return KW_ERR_NO_SPACE;
}

/* }====== */

int kw_lmdb_write(const kw_lmdb_file *file, size_t seen, const kw_commit_group *group,
                  bool is_durable) {
  writing w = {.file = file,
               .group = group,
               .seen = seen,
               .is_durable = is_durable,
               .part = {.group = group}};
  int rc = write_all(&w);
  if (rc != KW_OK && w.parted > 0 && kw_lmdb_remove_unfinished(file) != 0)
    return KW_ERR_STORAGE; /* the next open of the store removes the parts */
  return rc == KW_ERR_NO_SPACE ? make_room(&w) : rc;
}
