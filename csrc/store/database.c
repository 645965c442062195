/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/database.h"

#include "base/big_endian.h"
#include "base/directory.h"
#include "base/mem.h"
#include "model/error.h"

#define FORMAT 1
#define RECORD_KEY 13
#define PID_ROOM 16
#define TABLES 4
#define DATA "data.mdb"
#define LOCK_OF_DATA "data.mdb-lock"
#define COPY "copy.mdb"
#define LOCK_OF_COPY "copy.mdb-lock"
#define FREE_DBI 0 /* LMDB's own tables */
#define MAIN_DBI 1
#define META_PAGES 2
#define GROWN_AHEAD 2048      /* pages of the file that are there before they are needed */
#define KEPT_FROM_PUTS 1024   /* of them, those that are left to what deletes and compacts */
#define KEPT_FROM_DELETES 512 /* and those that are left to what compacts: that alone makes room */
#define LOCK_BYTES (16 << 10) /* more than LMDB's own lock file needs */
#define PAGES_PER_WRITE 16
#define RECORD_OVERHEAD 64 /* of LMDB, for its key and its place in a page */

enum { INCOMPLETE = -1 }; /* beside the errors of LMDB and of the system */

/* An open file: the database's, and that of views which were opened before it took another one. */
typedef struct file {
  MDB_env *env;
  MDB_dbi records;
  MDB_dbi leases;
  MDB_dbi rows;
  MDB_dbi meta;
  int refs; /* atomic */
} file;

struct kw_database {
  file *file;
  MDB_txn *reading;
  MDB_cursor *cursor;
  bool is_placed; /* the cursor, before `next` */
  kw_revision next;
  char path[KW_DIRECTORY_ROOM];
  size_t map_bytes;
  int lock;
  pid_t pid; /* who opened it */
  size_t page;
  int64_t size;
  int64_t in_use;
  bool is_damaged;
  kw_disk_meta opened;
};

/* {====== Keys and numbers ====== */

static MDB_val record_key(uint8_t *bytes, int64_t main, uint32_t sub, bool tombstone) {
  uint8_t *to = kw_big_endian_put32(kw_big_endian_put64(bytes, (uint64_t)main), sub);
  *to = tombstone;
  return (MDB_val){RECORD_KEY, bytes};
}

/* Ids rise with their bytes, negative ones first. */
static MDB_val lease_key(uint8_t *bytes, int64_t id) {
  kw_big_endian_put64(bytes, (uint64_t)id ^ UINT64_C(1) << 63);
  return (MDB_val){8, bytes};
}

static int64_t lease_of(const MDB_val *key) {
  return (int64_t)(kw_big_endian_get64(key->mv_data) ^ UINT64_C(1) << 63);
}

static kw_disk_entry entry_of(const MDB_val *key, const MDB_val *value) {
  const uint8_t *at = key->mv_data;
  return (kw_disk_entry){.rev = {(int64_t)kw_big_endian_get64(at), kw_big_endian_get32(at + 8)},
                         .tombstone = at[12] != 0,
                         .record = kw_slice_of(value->mv_data, value->mv_size)};
}

static MDB_val value_of(const kw_blob *blob) {
  return (MDB_val){blob->len, (void *)blob->bytes};
}

static MDB_val name_of(const char *name) {
  return (MDB_val){strlen(name), (void *)name};
}

static int put_number(MDB_txn *txn, MDB_dbi dbi, const char *name, int64_t v) {
  uint8_t bytes[8];
  MDB_val key = name_of(name), value = {8, bytes};
  kw_big_endian_put64(bytes, (uint64_t)v);
  return mdb_put(txn, dbi, &key, &value, 0);
}

static int64_t get_number(MDB_txn *txn, MDB_dbi dbi, const char *name, int64_t otherwise) {
  MDB_val key = name_of(name), value;
  if (mdb_get(txn, dbi, &key, &value) != 0 || value.mv_size != 8) return otherwise;
  return (int64_t)kw_big_endian_get64(value.mv_data);
}

/* }====== */

/* {====== Writing ====== */

static int write_change(const file *f, MDB_txn *txn, const kw_commit_change *c) {
  uint8_t bytes[RECORD_KEY], ttl[8];
  MDB_val key, value;
  int rc;
  switch (c->kind) {
    case KW_COMMIT_PUT:
      key = record_key(bytes, c->main, c->sub, c->tombstone);
      value = value_of(c->record);
      return mdb_put(txn, f->records, &key, &value, MDB_APPEND);
    case KW_COMMIT_REMOVE:
      key = record_key(bytes, c->main, c->sub, c->tombstone);
      rc = mdb_del(txn, f->records, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
    case KW_COMMIT_PUT_LEASE:
      key = lease_key(bytes, c->lease);
      kw_big_endian_put64(ttl, (uint64_t)c->ttl);
      value = (MDB_val){8, ttl};
      return mdb_put(txn, f->leases, &key, &value, 0);
    case KW_COMMIT_REMOVE_LEASE:
      key = lease_key(bytes, c->lease);
      rc = mdb_del(txn, f->leases, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
    case KW_COMMIT_PUT_ROW:
      key = value_of(c->name);
      value = value_of(c->row);
      return mdb_put(txn, f->rows, &key, &value, 0);
    case KW_COMMIT_REMOVE_ROW:
      key = value_of(c->name);
      rc = mdb_del(txn, f->rows, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
  }
  return EINVAL;
}

static int write_meta(const file *f, MDB_txn *txn, const kw_disk_meta *meta) {
  int rc = put_number(txn, f->meta, "revision", meta->revision);
  if (rc == 0) rc = put_number(txn, f->meta, "compact_revision", meta->compact_revision);
  if (rc == 0) rc = put_number(txn, f->meta, "compacted_until", meta->compacted_until);
  if (rc == 0) rc = put_number(txn, f->meta, "alarms", meta->alarms);
  return rc;
}

static kw_disk_meta read_meta(const file *f, MDB_txn *txn) {
  return (kw_disk_meta){.revision = get_number(txn, f->meta, "revision", 1),
                        .compact_revision = get_number(txn, f->meta, "compact_revision", -1),
                        .compacted_until = get_number(txn, f->meta, "compacted_until", 0),
                        .alarms = get_number(txn, f->meta, "alarms", 0)};
}

static size_t leaves_of(MDB_txn *txn, MDB_dbi dbi) {
  MDB_stat stat;
  return mdb_stat(txn, dbi, &stat) == 0 ? stat.ms_leaf_pages : SIZE_MAX / 4; /* they are added */
}

/* Records are appended, and fill pages of their own at least by half. Any other change may touch a page each, but no
 * more than there are. */
static size_t most_bytes(const kw_database *db, const kw_commit_group *group, size_t leaves) {
  size_t appended = 0, others = 0;
  for (size_t i = 0; i < group->n; i++) {
    const kw_commit_change *c = &group->changes[i];
    if (c->kind == KW_COMMIT_PUT) {
      appended += 2 * (RECORD_OVERHEAD + (size_t)c->record->len);
    } else {
      others++;
    }
    if (c->kind == KW_COMMIT_PUT_ROW) appended += 2 * (size_t)c->row->len;
  }
  return appended + (PAGES_PER_WRITE + 2 * kw_min_size(others, leaves)) * db->page;
}

/* The pages that a write has to leave free. */
static size_t pages_to_leave(const kw_commit_group *group) {
  size_t most = 0;
  for (size_t i = 0; i < group->n; i++) {
    const kw_commit_change *c = &group->changes[i];
    bool is_put = c->kind == KW_COMMIT_PUT && !c->tombstone;
    if (is_put || c->kind == KW_COMMIT_PUT_LEASE || c->kind == KW_COMMIT_PUT_ROW)
      return KEPT_FROM_PUTS;
    if (c->kind == KW_COMMIT_PUT) most = KEPT_FROM_DELETES;
  }
  return most;
}

static bool is_want_of_room(int rc) {
  return kw_is_no_room(rc) || rc == MDB_MAP_FULL;
}

static int failure_of(int rc) {
  if (rc == 0) return KW_OK;
  if (is_want_of_room(rc)) return KW_ERR_NO_SPACE;
  return rc == ENOMEM ? KW_ERR_NO_MEMORY : KW_ERR_STORAGE;
}

static int allocate(int fd, off_t from, off_t until) {
  int rc;
  do {
    rc = posix_fallocate(fd, from, until - from);
  } while (rc == EINTR);
  return rc == EOPNOTSUPP || rc == EINVAL ? 0 : rc;
}

static int file_of(const kw_database *db) {
  mdb_filehandle_t fd = -1;
  mdb_env_get_fd(db->file->env, &fd);
  return fd;
}

/* Bytes of the file up to the last page that was ever in use. */
static off_t used_bytes(const kw_database *db) {
  MDB_envinfo info;
  mdb_env_info(db->file->env, &info);
  return (off_t)((info.me_last_pgno + 1) * db->page);
}

/* Bytes of the pages that are free again, and that the reader does not see; only readers can count them. */
static off_t free_bytes(const kw_database *db) {
  size_t pages = 0, n, id, seen = mdb_txn_id(db->reading);
  MDB_txn *txn;
  MDB_cursor *cursor;
  MDB_val key, list; /* a transaction; the pages that it has freed: how many, and then they */
  if (mdb_txn_begin(db->file->env, NULL, MDB_RDONLY, &txn) != 0) return 0;
  if (mdb_cursor_open(txn, FREE_DBI, &cursor) == 0) {
    while (mdb_cursor_get(cursor, &key, &list, MDB_NEXT) == 0 && key.mv_size == sizeof id &&
           list.mv_size >= sizeof n) {
      memcpy(&id, key.mv_data, sizeof id);
      memcpy(&n, list.mv_data, sizeof n);
      if (id < seen) pages += n;
    }
    mdb_cursor_close(cursor);
  }
  mdb_txn_abort(txn);
  return (off_t)(pages * db->page);
}

/* Bytes that can be written on a full disk: those that the file has beyond what is in use, and pages that are free
 * again. It may be less where several pages have to be in a row, or where a view sees them. */
static off_t room_of(const kw_database *db, off_t size) {
  off_t ahead = size - used_bytes(db);
  return (ahead > 0 ? ahead : 0) + free_bytes(db);
}

/* A write under way. */
typedef struct writing {
  const kw_database *db;
  MDB_txn *txn;
  off_t most;    /* bytes that it may need */
  bool is_short; /* they could not be allocated: free pages have to do */
} writing;

/* Allocates all that may be written, so that a full disk is met here, where nothing has happened yet. On a full disk
 * free pages may do, and for a write that has to leave nothing they are tried: whether they really do, the commit
 * finds out. */
static int grow_ahead(writing *w, size_t to_leave) {
  const kw_database *db = w->db;
  struct stat st;
  int fd = file_of(db);
  if (fstat(fd, &st) < 0) return errno;
  off_t used = used_bytes(db), least = w->most + (off_t)(to_leave * db->page);
  if (st.st_size >= used + least) return 0;
  int rc = allocate(fd, st.st_size, used + least + (off_t)(GROWN_AHEAD * db->page));
  if (is_want_of_room(rc)) rc = allocate(fd, st.st_size, used + least);
  if (!is_want_of_room(rc)) return rc;
  w->is_short = true;
  return to_leave == 0 || room_of(db, st.st_size) >= least ? 0 : rc;
}

/* Whether the file system has less room than a write may need. */
static bool is_full(const writing *w) {
  struct statvfs fs;
  return fstatvfs(file_of(w->db), &fs) == 0 &&
         (uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)w->most;
}

/* A commit writes pages that nothing refers to yet, and then the page that does. If the first fails for want of room
 * or memory, nothing has happened; if the last fails, LMDB takes no more writes. A full disk may write less than it
 * was asked to, which LMDB calls EIO. */
static int commit(writing *w) {
  MDB_txn *next;
  int rc = mdb_txn_commit(w->txn);
  if (rc == 0) return KW_OK;
  if (mdb_txn_begin(w->db->file->env, NULL, 0, &next) != 0) return KW_ERR_STORAGE;
  mdb_txn_abort(next);
  return rc == EIO && (w->is_short || is_full(w)) ? KW_ERR_NO_SPACE : failure_of(rc);
}

static int begin_writing(const kw_database *db, writing *w) {
  *w = (writing){.db = db};
  return mdb_txn_begin(db->file->env, NULL, 0, &w->txn);
}

static int fill(const file *f, MDB_txn *txn, const kw_commit_group *group) {
  int rc = 0;
  for (size_t i = 0; i < group->n && rc == 0; i++) rc = write_change(f, txn, &group->changes[i]);
  return rc == 0 ? write_meta(f, txn, &group->meta) : rc;
}

static int write_all(const kw_database *db, const kw_commit_group *group) {
  const file *f = db->file;
  writing w;
  int rc = begin_writing(db, &w);
  if (rc != 0) return failure_of(rc);
  size_t leaves =
      leaves_of(w.txn, f->records) + leaves_of(w.txn, f->leases) + leaves_of(w.txn, f->rows);
  w.most = (off_t)most_bytes(db, group, leaves);
  rc = grow_ahead(&w, pages_to_leave(group));
  if (rc == 0) rc = fill(f, w.txn, group);
  if (rc == 0) return commit(&w);
  mdb_txn_abort(w.txn);
  return failure_of(rc);
}

/* Removes the first `most` records of those that are there; *removed says how many. */
static int remove_some(writing *w, const kw_commit_group *group, size_t most, size_t *removed) {
  uint8_t bytes[RECORD_KEY];
  int rc = 0;
  *removed = 0;
  for (size_t i = 0; i < group->n && *removed < most && (rc == 0 || rc == MDB_NOTFOUND); i++) {
    const kw_commit_change *c = &group->changes[i];
    if (c->kind != KW_COMMIT_REMOVE) continue;
    MDB_val key = record_key(bytes, c->main, c->sub, c->tombstone);
    rc = mdb_del(w->txn, w->db->file->records, &key, NULL);
    *removed += rc == 0;
  }
  return rc == MDB_NOTFOUND ? 0 : rc;
}

/* On a full disk: of records that are to be removed, removes as many as there is room for, each of which may need two
 * pages. Their own pages are free again for the second write from now. KW_ERR_STORAGE if LMDB takes no more writes,
 * otherwise KW_ERR_NO_SPACE. */
static int make_room(const kw_database *db, const kw_commit_group *group) {
  struct stat st;
  writing w;
  size_t removed;
  if (fstat(file_of(db), &st) < 0) return KW_ERR_NO_SPACE;
  size_t pages = (size_t)room_of(db, st.st_size) / db->page;
  if (pages <= PAGES_PER_WRITE || begin_writing(db, &w) != 0) return KW_ERR_NO_SPACE;
  w.is_short = true;
  int rc = remove_some(&w, group, (pages - PAGES_PER_WRITE) / 2, &removed);
  if (rc == 0 && removed > 0)
    return commit(&w) == KW_ERR_STORAGE ? KW_ERR_STORAGE : KW_ERR_NO_SPACE;
  mdb_txn_abort(w.txn);
  return KW_ERR_NO_SPACE;
}

int kw_database_write(const kw_database *db, const kw_commit_group *group) {
  int rc = write_all(db, group);
  return rc == KW_ERR_NO_SPACE ? make_room(db, group) : rc;
}

/* }====== */

/* {====== Opening ====== */

int kw_database_refuse(char text[KW_DISK_TEXT], const char *path, const char *why) {
  snprintf(text, KW_DISK_TEXT, "keywatch: cannot open %.360s: %.100s", path, why);
  return KW_ERR_STORAGE;
}

/* The same for an error of the system; KW_ERR_NO_SPACE for want of room. */
static int refuse_errno(char *text, const char *path, int number) {
  kw_database_refuse(text, path, mdb_strerror(number));
  return is_want_of_room(number) ? KW_ERR_NO_SPACE : KW_ERR_STORAGE;
}

/* Whoever holds the directory says so in the lock file. */
static int refuse_locked(char *text, const char *path, int fd) {
  char pid[PID_ROOM] = "", why[64];
  ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
  if (n > 0) pid[strcspn(pid, "\n")] = 0;
  snprintf(why, sizeof why, "process %s has it open", pid[0] != 0 ? pid : "?");
  return kw_database_refuse(text, path, why);
}

/* Without room for its process id it is locked all the same. */
static int lock(kw_database *db, char *text) {
  char name[KW_NAME_ROOM], pid[PID_ROOM];
  db->lock = open(kw_directory_name(db->path, "lock", name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (db->lock < 0) return refuse_errno(text, db->path, errno);
  if (flock(db->lock, LOCK_EX | LOCK_NB) < 0) return refuse_locked(text, db->path, db->lock);
  int n = snprintf(pid, sizeof pid, "%ld\n", (long)db->pid);
  bool is_told = ftruncate(db->lock, 0) == 0 && pwrite(db->lock, pid, (size_t)n, 0) == n;
  (void)is_told;
  return KW_OK;
}

static int make_directory(const char *path, char *text) {
  struct stat st;
  if (mkdir(path, 0700) == 0) return KW_OK;
  if (errno != EEXIST) return refuse_errno(text, path, errno);
  if (stat(path, &st) < 0) return kw_database_refuse(text, path, strerror(errno));
  return S_ISDIR(st.st_mode) ? KW_OK : kw_database_refuse(text, path, "it is not a directory");
}

/* LMDB writes to its lock file through memory, where a full disk would be fatal. */
static int make_lock_file(const kw_database *db, const char *file_name) {
  char name[KW_NAME_ROOM];
  int fd = open(kw_directory_name(db->path, file_name, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int rc = allocate(fd, 0, LOCK_BYTES);
  close(fd);
  return rc;
}

static int open_env(const kw_database *db, const char *file_name, unsigned flags, MDB_env **env) {
  char name[KW_NAME_ROOM];
  int rc = mdb_env_create(env);
  if (rc == 0) rc = mdb_env_set_maxdbs(*env, TABLES);
  if (rc == 0) rc = mdb_env_set_mapsize(*env, db->map_bytes);
  if (rc == 0)
    rc = mdb_env_open(*env, kw_directory_name(db->path, file_name, name), MDB_NOSUBDIR | flags,
                      0600);
  return rc;
}

/* So that a full disk is met here, and not inside of a commit. */
static int make_pages(MDB_env *env) {
  MDB_stat stat;
  mdb_filehandle_t fd;
  mdb_env_stat(env, &stat);
  mdb_env_get_fd(env, &fd);
  return allocate(fd, 0, (off_t)(PAGES_PER_WRITE * stat.ms_psize));
}

static int make_tables(MDB_env *env) {
  static const char *const others[] = {"records", "leases", "kept"};
  MDB_txn *txn;
  MDB_dbi meta, other;
  int rc = mdb_txn_begin(env, NULL, 0, &txn);
  if (rc != 0) return rc;
  rc = mdb_dbi_open(txn, "meta", MDB_CREATE, &meta);
  if (rc == 0) rc = put_number(txn, meta, "format", FORMAT);
  for (size_t i = 0; i < KW_LENGTH(others) && rc == 0; i++)
    rc = mdb_dbi_open(txn, others[i], MDB_CREATE, &other);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

static void unlink_in(const kw_database *db, const char *file_name) {
  char name[KW_NAME_ROOM];
  unlink(kw_directory_name(db->path, file_name, name));
}

static int rename_in(const kw_database *db, const char *from, const char *to) {
  char old[KW_NAME_ROOM], new[KW_NAME_ROOM];
  kw_directory_name(db->path, from, old);
  return rename(old, kw_directory_name(db->path, to, new)) < 0 ? errno : 0;
}

/* A database that is whole has its name; until then it has another one, and what was left under that is of no use. */
static int make_file(const kw_database *db) {
  char name[KW_NAME_ROOM];
  MDB_env *env = NULL;
  if (access(kw_directory_name(db->path, DATA, name), F_OK) == 0) return 0;
  int rc = open_env(db, COPY, MDB_NOLOCK, &env);
  if (rc == 0) rc = make_pages(env);
  if (rc == 0) rc = make_tables(env);
  if (env != NULL) mdb_env_close(env);
  return rc == 0 ? rename_in(db, COPY, DATA) : rc;
}

static int sync_names(const kw_database *db) {
  int rc = kw_directory_sync(db->path);
  return rc == 0 ? kw_directory_sync_parent(db->path) : rc;
}

/* What LMDB writes at the beginning of a file, twice: the one of the later transaction counts. */
typedef struct head {
  size_t page_number;
  uint16_t page[4];
  uint32_t magic;
  uint32_t version;
  void *address;
  size_t map_bytes;
  struct {
    uint32_t page_bytes; /* of the first */
    uint16_t flags[2];
    size_t counts[4];
    size_t root;
  } tables[2];
  size_t last_page;
  size_t txn;
} head;

#define MAGIC 0xBEEFC0DE
#define NO_PAGE SIZE_MAX

static bool is_page(const head *h, size_t number) {
  return number == NO_PAGE || (number > 1 && number <= h->last_page);
}

/* What LMDB believes, and would be fatal if it were false: it reads through memory. What it finds out by itself is
 * left to it, but for an empty file, which it takes for a new one. */
static int check_heads(int fd, size_t size) {
  head one, other;
  if (size == 0) return INCOMPLETE;
  if (pread(fd, &one, sizeof one, 0) != sizeof one || one.magic != MAGIC) return 0;
  size_t page = one.tables[0].page_bytes;
  if (pread(fd, &other, sizeof other, (off_t)page) != sizeof other || other.magic != MAGIC)
    return 0;
  const head *last = other.txn > one.txn ? &other : &one;
  if (page < sizeof one || other.tables[0].page_bytes != page) return MDB_CORRUPTED;
  if (last->last_page >= size / page) return INCOMPLETE;
  bool ok = is_page(last, last->tables[0].root) && is_page(last, last->tables[1].root);
  return ok ? 0 : MDB_CORRUPTED;
}

static int check_file(const kw_database *db) {
  char name[KW_NAME_ROOM];
  struct stat st;
  int fd = open(kw_directory_name(db->path, DATA, name), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int rc = fstat(fd, &st) < 0 ? errno : check_heads(fd, (size_t)st.st_size);
  close(fd);
  return rc;
}

static int open_tables(file *f, int64_t *format) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(f->env, NULL, MDB_RDONLY, &txn);
  if (rc != 0) return rc;
  rc = mdb_dbi_open(txn, "meta", 0, &f->meta);
  if (rc == 0) *format = get_number(txn, f->meta, "format", -1);
  if (rc == 0) rc = mdb_dbi_open(txn, "records", 0, &f->records);
  if (rc == 0) rc = mdb_dbi_open(txn, "leases", 0, &f->leases);
  if (rc == 0) rc = mdb_dbi_open(txn, "kept", 0, &f->rows);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

static size_t pages_of(const kw_database *db, MDB_dbi dbi) {
  MDB_stat stat;
  if (mdb_stat(db->reading, dbi, &stat) != 0) return 0;
  return stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
}

/* When the reader has moved on. */
static void measure(kw_database *db) {
  const file *f = db->file;
  MDB_envinfo info;
  mdb_env_info(f->env, &info);
  size_t used = META_PAGES + pages_of(db, FREE_DBI) + pages_of(db, MAIN_DBI) +
                pages_of(db, f->meta) + pages_of(db, f->records) + pages_of(db, f->leases) +
                pages_of(db, f->rows);
  db->size = (int64_t)((info.me_last_pgno + 1) * db->page);
  db->in_use = (int64_t)(used * db->page);
}

static int begin_reading(kw_database *db) {
  MDB_stat stat;
  int rc = mdb_txn_begin(db->file->env, NULL, MDB_RDONLY, &db->reading);
  if (rc == 0) rc = mdb_cursor_open(db->reading, db->file->records, &db->cursor);
  if (rc != 0) return rc;
  mdb_env_stat(db->file->env, &stat);
  db->page = stat.ms_psize;
  measure(db);
  db->opened = read_meta(db->file, db->reading);
  return 0;
}

/* A file, with its reader. */
static int open_file(kw_database *db, const char *name, const char *lock_name, int64_t *format) {
  db->file = kw_alloc_zeroed(sizeof *db->file);
  if (db->file == NULL) return ENOMEM;
  db->file->refs = 1;
  int rc = make_lock_file(db, lock_name);
  if (rc == 0) rc = open_env(db, name, MDB_NOTLS | MDB_NORDAHEAD, &db->file->env);
  if (rc == 0) rc = open_tables(db->file, format);
  return rc == 0 ? begin_reading(db) : rc;
}

static file *retain(file *f) {
  __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  return f;
}

static void release(file *f) {
  if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  if (f->env != NULL) mdb_env_close(f->env);
  kw_free(f);
}

static void close_file(kw_database *db) {
  if (db->cursor != NULL) mdb_cursor_close(db->cursor);
  if (db->reading != NULL) mdb_txn_abort(db->reading);
  if (db->file != NULL) release(db->file);
}

static int open_directory(kw_database *db, char *text) {
  int64_t format = FORMAT;
  unlink_in(db, COPY); /* that was not finished */
  unlink_in(db, LOCK_OF_COPY);
  int rc = make_file(db);
  if (rc == 0) rc = sync_names(db);
  if (rc == 0) rc = check_file(db);
  if (rc == 0) rc = open_file(db, DATA, LOCK_OF_DATA, &format);
  if (rc == ENOMEM && db->file == NULL) return KW_ERR_NO_MEMORY;
  if (format != FORMAT)
    return kw_database_refuse(text, db->path, "its format is not one of this keywatch");
  if (rc == INCOMPLETE) return kw_database_refuse(text, db->path, "its database has lost its end");
  if (is_want_of_room(rc)) return refuse_errno(text, db->path, rc);
  if (rc == MDB_NOTFOUND)
    return kw_database_refuse(text, db->path, "its database is not one of keywatch");
  return rc == 0 ? KW_OK : kw_database_refuse(text, db->path, mdb_strerror(rc));
}

int kw_database_open(const char *path, size_t map_bytes, kw_database **result,
                     char text[KW_DISK_TEXT]) {
  if (strlen(path) >= KW_DIRECTORY_ROOM)
    return kw_database_refuse(text, path, strerror(ENAMETOOLONG));
  kw_database *db = kw_alloc_zeroed(sizeof *db);
  if (db == NULL) return KW_ERR_NO_MEMORY;
  db->lock = -1;
  db->map_bytes = map_bytes;
  db->pid = getpid();
  strcpy(db->path, path);
  int rc = make_directory(path, text);
  if (rc == KW_OK) rc = lock(db, text);
  if (rc == KW_OK) rc = open_directory(db, text);
  if (rc != KW_OK) {
    kw_database_close(db);
    return rc;
  }
  *result = db;
  return KW_OK;
}

bool kw_database_is_inherited(const kw_database *db) {
  return db->pid != getpid();
}

/* What a process has inherited is its parent's, and shares the place of the reader. */
void kw_database_close(kw_database *db) {
  if (!kw_database_is_inherited(db)) close_file(db);
  if (db->lock >= 0) close(db->lock);
  kw_free(db);
}

kw_disk_meta kw_database_get_meta(const kw_database *db) {
  return db->opened;
}

const char *kw_database_path(const kw_database *db) {
  return db->path;
}

/* }====== */

/* {====== Reading ====== */

int kw_database_renew(kw_database *db) {
  db->is_placed = false;
  mdb_txn_reset(db->reading);
  int rc = mdb_txn_renew(db->reading);
  if (rc == 0) rc = mdb_cursor_renew(db->reading, db->cursor);
  if (rc == 0) measure(db);
  return rc == 0 ? KW_OK : KW_ERR_STORAGE;
}

size_t kw_database_records(const kw_database *db) {
  MDB_stat stat;
  return mdb_stat(db->reading, db->file->records, &stat) == 0 ? stat.ms_entries : 0;
}

int kw_database_read(const kw_database *db, kw_revision rev, bool tombstone, kw_slice *record) {
  uint8_t bytes[RECORD_KEY];
  MDB_val key = record_key(bytes, rev.main, rev.sub, tombstone), value;
  if (mdb_get(db->reading, db->file->records, &key, &value) != 0) return KW_ERR_CORRUPT;
  *record = kw_slice_of(value.mv_data, value.mv_size);
  return KW_OK;
}

/* Whether the cursor has found something with a key, and a value, of the right length. */
static bool has_found(kw_database *db, int rc, const MDB_val *key, size_t key_len, bool is_good) {
  bool ok = rc == 0 && key->mv_size == key_len && is_good;
  if (!ok && rc != MDB_NOTFOUND) db->is_damaged = true;
  return ok;
}

bool kw_database_is_damaged(const kw_database *db) {
  return db->is_damaged;
}

/* Whoever goes on where he was needs no search. */
int kw_database_next(kw_database *db, kw_revision rev, kw_disk_entry *entry) {
  uint8_t bytes[RECORD_KEY];
  MDB_val key = record_key(bytes, rev.main, rev.sub, false), value;
  bool goes_on = db->is_placed && kw_revision_compare(db->next, rev) == 0;
  int rc = mdb_cursor_get(db->cursor, &key, &value, goes_on ? MDB_NEXT : MDB_SET_RANGE);
  db->is_placed = rc == 0 && key.mv_size == RECORD_KEY;
  if (!db->is_placed) return rc == MDB_NOTFOUND ? 0 : KW_ERR_CORRUPT;
  *entry = entry_of(&key, &value);
  db->next = (kw_revision){.main = entry->rev.main, .sub = entry->rev.sub + 1};
  return 1;
}

bool kw_database_next_lease(kw_database *db, const int64_t *after, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  MDB_cursor *cursor;
  MDB_val key = lease_key(bytes, after == NULL ? INT64_MIN : *after), value = {0};
  int rc = mdb_cursor_open(db->reading, db->file->leases, &cursor);
  if (rc == 0) {
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    if (rc == 0 && after != NULL) rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    mdb_cursor_close(cursor);
  }
  if (!has_found(db, rc, &key, 8, value.mv_size == 8)) return false;
  *id = lease_of(&key);
  *ttl = (int64_t)kw_big_endian_get64(value.mv_data);
  return true;
}

bool kw_database_next_row(kw_database *db, kw_slice *name, kw_slice *bytes) {
  MDB_cursor *cursor;
  MDB_val key = {name->len, (void *)name->data}, value;
  if (mdb_cursor_open(db->reading, db->file->rows, &cursor) != 0) return false;
  int rc = mdb_cursor_get(cursor, &key, &value, name->len == 0 ? MDB_FIRST : MDB_SET_RANGE);
  if (rc == 0 && kw_slice_equal(*name, kw_slice_of(key.mv_data, key.mv_size)))
    rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  mdb_cursor_close(cursor);
  if (!has_found(db, rc, &key, key.mv_size, true)) return false;
  *name = kw_slice_of(key.mv_data, key.mv_size);
  *bytes = kw_slice_of(value.mv_data, value.mv_size);
  return true;
}

int64_t kw_database_get_size(const kw_database *db, int64_t *in_use) {
  *in_use = db->in_use;
  return db->size;
}

/* }====== */

/* {====== Defragmentation ====== */

static int copy_to(const kw_database *db, const char *name) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int rc = mdb_env_copyfd2(db->file->env, fd, MDB_CP_COMPACT);
  if (rc == 0 && fsync(fd) < 0) rc = errno;
  close(fd);
  if (rc != 0) unlink(name);
  return rc;
}

int kw_database_copy(const kw_database *db) {
  char name[KW_NAME_ROOM];
  return failure_of(copy_to(db, kw_directory_name(db->path, COPY, name)));
}

static void take_file(kw_database *db, const kw_database *from) {
  close_file(db);
  db->file = from->file;
  db->reading = from->reading;
  db->cursor = from->cursor;
  db->is_placed = false;
  measure(db);
}

int kw_database_swap(kw_database *db, bool *is_swapped) {
  kw_database new = {.map_bytes = db->map_bytes};
  int64_t format;
  strcpy(new.path, db->path);
  int rc = open_file(&new, COPY, LOCK_OF_COPY, &format);
  if (rc == 0) rc = rename_in(db, COPY, DATA);
  *is_swapped = rc == 0;
  if (rc != 0) {
    close_file(&new);
    unlink_in(db, COPY);
    unlink_in(db, LOCK_OF_COPY);
    return failure_of(rc);
  }
  take_file(db, &new);
  rename_in(db, LOCK_OF_COPY, LOCK_OF_DATA);
  return failure_of(kw_directory_sync(db->path));
}

/* }====== */

/* {====== Views ====== */

struct kw_view {
  file *file;
  MDB_txn *txn;
  MDB_cursor *records;
  MDB_cursor *leases;
  kw_disk_meta meta;
  bool is_negative; /* the ids that are walked: they come last */
  bool has_leases;  /* the walk of those has begun */
};

int kw_view_open(kw_database *db, kw_view **result) {
  kw_view *view = kw_alloc_zeroed(sizeof *view);
  if (view == NULL) return KW_ERR_NO_MEMORY;
  view->file = retain(db->file);
  const file *f = view->file;
  int rc = mdb_txn_begin(f->env, NULL, MDB_RDONLY, &view->txn);
  if (rc == 0) rc = mdb_cursor_open(view->txn, f->records, &view->records);
  if (rc == 0) rc = mdb_cursor_open(view->txn, f->leases, &view->leases);
  if (rc != 0) {
    kw_view_close(view);
    return rc == ENOMEM ? KW_ERR_NO_MEMORY : KW_ERR_STORAGE;
  }
  view->meta = read_meta(f, view->txn);
  *result = view;
  return KW_OK;
}

void kw_view_close(kw_view *view) {
  if (view->leases != NULL) mdb_cursor_close(view->leases);
  if (view->records != NULL) mdb_cursor_close(view->records);
  if (view->txn != NULL) mdb_txn_abort(view->txn);
  release(view->file);
  kw_free(view);
}

kw_disk_meta kw_view_meta(const kw_view *view) {
  return view->meta;
}

int kw_view_next(kw_view *view, kw_disk_entry *entry) {
  MDB_val key, value;
  int rc = mdb_cursor_get(view->records, &key, &value, MDB_NEXT);
  if (rc == MDB_NOTFOUND) return 0;
  if (rc != 0 || key.mv_size != RECORD_KEY) return KW_ERR_CORRUPT;
  *entry = entry_of(&key, &value);
  return 1;
}

/* Those that are not negative; then, from the beginning, those that are. */
int kw_view_next_lease(kw_view *view, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  MDB_val key = lease_key(bytes, 0), value;
  int rc = mdb_cursor_get(view->leases, &key, &value, view->has_leases ? MDB_NEXT : MDB_SET_RANGE);
  view->has_leases = true;
  if (rc == MDB_NOTFOUND && !view->is_negative) {
    view->is_negative = true;
    rc = mdb_cursor_get(view->leases, &key, &value, MDB_FIRST);
  }
  if (rc == MDB_NOTFOUND) return 0;
  if (rc != 0 || key.mv_size != 8 || value.mv_size != 8) return KW_ERR_CORRUPT;
  *id = lease_of(&key);
  *ttl = (int64_t)kw_big_endian_get64(value.mv_data);
  return view->is_negative && *id >= 0 ? 0 : 1;
}

/* }====== */
