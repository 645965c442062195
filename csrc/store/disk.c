/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/disk.h"

#include "base/mem.h"
#include "base/thread.h"
#include "model/error.h"

#define FORMAT 1
#define FREE_TABLE 0 /* LMDB's own */
#define RECORD_KEY 13
#define NAME_ROOM 16
#define DIRECTORY_ROOM 4096
#define PATH_ROOM (DIRECTORY_ROOM + NAME_ROOM)
#define TABLES 4
#define DATA "data.mdb"
#define LOCK_OF_DATA "data.mdb-lock"
#define COPY "copy.mdb"
#define LOCK_OF_COPY "copy.mdb-lock"
#define FREE_DBI 0 /* LMDB's own tables */
#define MAIN_DBI 1
#define META_PAGES 2
#define GROWN_AHEAD (8 << 20) /* bytes of the file that are there before they are needed */
#define RESERVE (4 << 20)     /* of them, those that only deletions and their like may use */
#define LOCK_BYTES (16 << 10) /* more than LMDB's own lock file needs */
#define PAGES_PER_GROUP 16
#define RECORD_OVERHEAD 64 /* of LMDB, for its key and its place in a page */

enum { INCOMPLETE = -1 }; /* beside the errors of LMDB and of the system */

typedef enum change_kind {
  PUT,
  REMOVE,
  PUT_LEASE,
  REMOVE_LEASE,
  PUT_KEPT,
  REMOVE_KEPT
} change_kind;

typedef struct change {
  change_kind kind;
  bool tombstone;
  uint32_t sub;
  union {
    int64_t main; /* or the id of a lease */
    kw_blob *name;
  };
  union {
    const kw_blob *record;
    int64_t ttl;
    kw_blob *kept; /* NULL of what is removed */
  };
} change;

typedef struct group {
  change *changes;
  size_t n;
  size_t cap;
  size_t n_kept; /* changes of kept states */
  kw_disk_meta meta;
  bool defragment;
} group;

typedef enum work { IDLE, SUBMITTED, DONE } work;

/* An open database: the disk's, and that of views which were opened before it took another one. */
typedef struct shared {
  MDB_env *env;
  int refs; /* atomic */
} shared;

struct kw_disk {
  MDB_env *env;
  shared *shared;
  MDB_dbi records;
  MDB_dbi leases;
  MDB_dbi kept;
  MDB_dbi meta;
  MDB_txn *reading;
  MDB_cursor *cursor;
  bool is_placed; /* the cursor, before `next` */
  kw_revision next;
  char path[DIRECTORY_ROOM];
  size_t map_bytes;
  int lock;
  pid_t pid; /* who opened it */
  size_t page;
  int64_t size;
  int64_t in_use;
  bool is_damaged;
  kw_disk_meta opened;

  group gathering;
  group writing; /* the thread's, while it works */

  pthread_t thread;
  bool has_thread;
  pthread_mutex_t mutex; /* for what follows */
  pthread_cond_t changed;
  work work;
  int rc;
  int copied; /* what the last copy has come to: 0, or an error of LMDB or the system */
  bool must_end;
  kw_bell bell;
#ifdef KW_PROBE
  bool is_held;
  int next_failure;
#endif
};

/* {====== Keys and numbers ====== */

static uint8_t *put_big(uint8_t *to, uint64_t v, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) *to++ = (uint8_t)(v >> shift);
  return to;
}

static uint64_t get_big(const uint8_t *from, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v = v << 8 | from[i];
  return v;
}

static MDB_val record_key(uint8_t *bytes, int64_t main, uint32_t sub, bool tombstone) {
  uint8_t *to = put_big(put_big(bytes, (uint64_t)main, 8), sub, 4);
  *to = tombstone;
  return (MDB_val){RECORD_KEY, bytes};
}

/* Ids rise with their bytes, negative ones first. */
static MDB_val lease_key(uint8_t *bytes, int64_t id) {
  put_big(bytes, (uint64_t)id ^ UINT64_C(1) << 63, 8);
  return (MDB_val){8, bytes};
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
  put_big(bytes, (uint64_t)v, 8);
  return mdb_put(txn, dbi, &key, &value, 0);
}

static int64_t get_number(MDB_txn *txn, MDB_dbi dbi, const char *name, int64_t otherwise) {
  MDB_val key = name_of(name), value;
  if (mdb_get(txn, dbi, &key, &value) != 0 || value.mv_size != 8) return otherwise;
  return (int64_t)get_big(value.mv_data, 8);
}

/* }====== */

/* The name of a file in the directory. */
static const char *name_in(const kw_disk *disk, const char *file, char name[PATH_ROOM]) {
  snprintf(name, PATH_ROOM, "%s/%s", disk->path, file);
  return name;
}

/* {====== The thread ====== */

static int write_change(const kw_disk *disk, MDB_txn *txn, const change *c) {
  uint8_t bytes[RECORD_KEY], ttl[8];
  MDB_val key, value;
  int rc;
  switch (c->kind) {
    case PUT:
      key = record_key(bytes, c->main, c->sub, c->tombstone);
      value = value_of(c->record);
      return mdb_put(txn, disk->records, &key, &value, MDB_APPEND);
    case REMOVE:
      key = record_key(bytes, c->main, c->sub, c->tombstone);
      rc = mdb_del(txn, disk->records, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
    case PUT_LEASE:
      key = lease_key(bytes, c->main);
      put_big(ttl, (uint64_t)c->ttl, 8);
      value = (MDB_val){8, ttl};
      return mdb_put(txn, disk->leases, &key, &value, 0);
    case REMOVE_LEASE:
      key = lease_key(bytes, c->main);
      rc = mdb_del(txn, disk->leases, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
    case PUT_KEPT:
      key = value_of(c->name);
      value = value_of(c->kept);
      return mdb_put(txn, disk->kept, &key, &value, 0);
    case REMOVE_KEPT:
      key = value_of(c->name);
      rc = mdb_del(txn, disk->kept, &key, NULL);
      return rc == MDB_NOTFOUND ? 0 : rc;
  }
  return EINVAL;
}

static int write_meta(const kw_disk *disk, MDB_txn *txn, const kw_disk_meta *meta) {
  int rc = put_number(txn, disk->meta, "revision", meta->revision);
  if (rc == 0) rc = put_number(txn, disk->meta, "compact_revision", meta->compact_revision);
  if (rc == 0) rc = put_number(txn, disk->meta, "compacted_until", meta->compacted_until);
  if (rc == 0) rc = put_number(txn, disk->meta, "alarms", meta->alarms);
  return rc;
}

static size_t leaves_of(MDB_txn *txn, MDB_dbi dbi) {
  MDB_stat stat;
  return mdb_stat(txn, dbi, &stat) == 0 ? stat.ms_leaf_pages : SIZE_MAX;
}

/* Records are appended, and fill pages of their own at least by half. Any other change may touch a page each, but no
 * more than there are. */
static size_t most_bytes(const kw_disk *disk, const group *g, size_t leaves) {
  size_t appended = 0, others = 0;
  for (size_t i = 0; i < g->n; i++) {
    if (g->changes[i].kind == PUT) {
      appended += 2 * (RECORD_OVERHEAD + (size_t)g->changes[i].record->len);
    } else {
      others++;
    }
    if (g->changes[i].kind == PUT_KEPT) appended += 2 * (size_t)g->changes[i].kept->len;
  }
  return appended + (PAGES_PER_GROUP + 2 * kw_min_size(others, leaves)) * disk->page;
}

static bool is_growing(const group *g) {
  for (size_t i = 0; i < g->n; i++) {
    const change *c = &g->changes[i];
    if (c->kind == PUT_LEASE || c->kind == PUT_KEPT || (c->kind == PUT && !c->tombstone))
      return true;
  }
  return false;
}

static bool is_want_of_room(int rc) {
  return rc == ENOSPC || rc == EDQUOT || rc == MDB_MAP_FULL;
}

static int failure_of(int rc) {
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

/* Bytes of the pages that are free again; only readers can see them. */
static size_t free_bytes(const kw_disk *disk) {
  size_t pages = 0, n;
  MDB_txn *txn;
  MDB_cursor *cursor;
  MDB_val key, list; /* of page numbers: how many, and then they */
  if (mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &txn) != 0) return 0;
  if (mdb_cursor_open(txn, FREE_DBI, &cursor) == 0) {
    while (mdb_cursor_get(cursor, &key, &list, MDB_NEXT) == 0) {
      memcpy(&n, list.mv_data, sizeof n);
      pages += n;
    }
    mdb_cursor_close(cursor);
  }
  mdb_txn_abort(txn);
  return pages * disk->page;
}

/* Room for all that the group may write, so that a full disk is met here, where nothing has happened yet. On a full
 * disk pages that are free again may do. What makes the store larger leaves room behind for what may make it smaller,
 * which can have the last of them; whether they suffice, the commit finds out. */
static int grow_ahead(const kw_disk *disk, MDB_txn *txn, const group *g) {
  MDB_envinfo info;
  struct stat st;
  mdb_filehandle_t fd;
  size_t leaves =
      leaves_of(txn, disk->records) + leaves_of(txn, disk->leases) + leaves_of(txn, disk->kept);
  mdb_env_info(disk->env, &info);
  mdb_env_get_fd(disk->env, &fd);
  if (fstat(fd, &st) < 0) return errno;
  off_t used = (off_t)((info.me_last_pgno + 1) * disk->page);
  off_t least = (off_t)most_bytes(disk, g, leaves) + (is_growing(g) ? RESERVE : 0);
  if (st.st_size >= used + least) return 0;
  int rc = allocate(fd, st.st_size, used + least + GROWN_AHEAD);
  if (is_want_of_room(rc)) rc = allocate(fd, st.st_size, used + least);
  if (!is_want_of_room(rc)) return rc;
  return !is_growing(g) || st.st_size - used + (off_t)free_bytes(disk) >= least ? 0 : rc;
}

static int fill(const kw_disk *disk, MDB_txn *txn, const group *g) {
  int rc = 0;
  for (size_t i = 0; i < g->n && rc == 0; i++) rc = write_change(disk, txn, &g->changes[i]);
  return rc == 0 ? write_meta(disk, txn, &g->meta) : rc;
}

/* A commit writes pages that nothing refers to yet, and then the page that does. If the first fails for want of room,
 * nothing has happened; if the last fails, LMDB takes no more writes. */
static int commit(const kw_disk *disk, MDB_txn *txn) {
  int rc = mdb_txn_commit(txn);
  if (rc == 0) return KW_OK;
  if (mdb_txn_begin(disk->env, NULL, 0, &txn) != 0) return KW_ERR_STORAGE;
  mdb_txn_abort(txn);
  return failure_of(rc);
}

/* A full disk or map leaves everything as it was. Any other commit that fails leaves open what has happened. */
static int write_group(const kw_disk *disk, const group *g) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(disk->env, NULL, 0, &txn);
  if (rc != 0) return failure_of(rc);
  rc = grow_ahead(disk, txn, g);
  if (rc == 0) rc = fill(disk, txn, g);
  if (rc == 0) return commit(disk, txn);
  mdb_txn_abort(txn);
  return failure_of(rc);
}

static int copy_to(const kw_disk *disk, const char *name) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int rc = mdb_env_copyfd2(disk->env, fd, MDB_CP_COMPACT);
  if (rc == 0 && fsync(fd) < 0) rc = errno;
  close(fd);
  if (rc != 0) unlink(name);
  return rc;
}

/* All that there is, without the gaps, beside it. */
static int copy(const kw_disk *disk) {
  char name[PATH_ROOM];
  return copy_to(disk, name_in(disk, COPY, name));
}

#ifdef KW_PROBE

static bool is_held(const kw_disk *disk) {
  return disk->is_held;
}

static int take_failure(kw_disk *disk) {
  pthread_mutex_lock(&disk->mutex);
  int rc = disk->next_failure;
  disk->next_failure = KW_OK;
  pthread_mutex_unlock(&disk->mutex);
  return rc;
}

void kw_disk_hold(kw_disk *disk, bool hold) {
  pthread_mutex_lock(&disk->mutex);
  disk->is_held = hold;
  pthread_cond_broadcast(&disk->changed);
  pthread_mutex_unlock(&disk->mutex);
}

void kw_disk_fail_next(kw_disk *disk, int rc) {
  pthread_mutex_lock(&disk->mutex);
  disk->next_failure = rc;
  pthread_mutex_unlock(&disk->mutex);
}

#else

static bool is_held(const kw_disk *disk) {
  (void)disk;
  return false;
}

static int take_failure(kw_disk *disk) {
  (void)disk;
  return KW_OK;
}

#endif

static void *run(void *ctx) {
  kw_disk *disk = ctx;
  pthread_mutex_lock(&disk->mutex);
  while (true) {
    while ((disk->work != SUBMITTED || is_held(disk)) && !disk->must_end)
      pthread_cond_wait(&disk->changed, &disk->mutex);
    if (disk->work != SUBMITTED) break;
    pthread_mutex_unlock(&disk->mutex);
    int rc = take_failure(disk);
    if (rc == KW_OK) rc = write_group(disk, &disk->writing);
    int copied = rc == KW_OK && disk->writing.defragment ? copy(disk) : 0;
    pthread_mutex_lock(&disk->mutex);
    disk->rc = rc;
    disk->copied = copied;
    disk->work = DONE;
    pthread_cond_broadcast(&disk->changed);
    if (disk->bell.ring != NULL) disk->bell.ring(disk->bell.ctx);
  }
  pthread_mutex_unlock(&disk->mutex);
  return NULL;
}

static bool start_thread(kw_disk *disk) {
  disk->has_thread = kw_thread_start(&disk->thread, run, disk);
  return disk->has_thread;
}

static void end_thread(kw_disk *disk) {
  if (!disk->has_thread) return;
  pthread_mutex_lock(&disk->mutex);
  disk->must_end = true;
  pthread_cond_broadcast(&disk->changed);
  pthread_mutex_unlock(&disk->mutex);
  pthread_join(disk->thread, NULL);
}

/* }====== */

/* {====== Opening ====== */

static int refuse(char *text, const char *path, const char *why) {
  snprintf(text, KW_DISK_TEXT, "keywatch: cannot open %.360s: %.100s", path, why);
  return KW_ERR_STORAGE;
}

/* Whoever holds the directory says so in the lock file. */
static int refuse_locked(char *text, const char *path, int fd) {
  char pid[NAME_ROOM] = "", why[64];
  ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
  if (n > 0) pid[strcspn(pid, "\n")] = 0;
  snprintf(why, sizeof why, "process %s has it open", pid[0] != 0 ? pid : "?");
  return refuse(text, path, why);
}

/* Without room for its process id it is locked all the same. */
static int lock(kw_disk *disk, char *text) {
  char name[PATH_ROOM], pid[NAME_ROOM];
  disk->lock = open(name_in(disk, "lock", name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (disk->lock < 0) return refuse(text, disk->path, strerror(errno));
  if (flock(disk->lock, LOCK_EX | LOCK_NB) < 0) return refuse_locked(text, disk->path, disk->lock);
  int n = snprintf(pid, sizeof pid, "%ld\n", (long)disk->pid);
  bool is_told = ftruncate(disk->lock, 0) == 0 && pwrite(disk->lock, pid, (size_t)n, 0) == n;
  (void)is_told;
  return KW_OK;
}

static int make_directory(const char *path, char *text) {
  struct stat st;
  if (mkdir(path, 0700) == 0) return KW_OK;
  if (errno != EEXIST) return refuse(text, path, strerror(errno));
  if (stat(path, &st) < 0) return refuse(text, path, strerror(errno));
  return S_ISDIR(st.st_mode) ? KW_OK : refuse(text, path, "it is not a directory");
}

/* LMDB writes to its lock file through memory, where a full disk would be fatal. */
static int make_lock_file(const kw_disk *disk, const char *file) {
  char name[PATH_ROOM];
  int fd = open(name_in(disk, file, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int rc = allocate(fd, 0, LOCK_BYTES);
  close(fd);
  return rc;
}

static int open_env(const kw_disk *disk, const char *file, unsigned flags, MDB_env **env) {
  char name[PATH_ROOM];
  int rc = mdb_env_create(env);
  if (rc == 0) rc = mdb_env_set_maxdbs(*env, TABLES);
  if (rc == 0) rc = mdb_env_set_mapsize(*env, disk->map_bytes);
  if (rc == 0) rc = mdb_env_open(*env, name_in(disk, file, name), MDB_NOSUBDIR | flags, 0600);
  return rc;
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

static void unlink_in(const kw_disk *disk, const char *file) {
  char name[PATH_ROOM];
  unlink(name_in(disk, file, name));
}

static int rename_in(const kw_disk *disk, const char *from, const char *to) {
  char old[PATH_ROOM], new[PATH_ROOM];
  return rename(name_in(disk, from, old), name_in(disk, to, new)) < 0 ? errno : 0;
}

/* A database that is whole has its name; until then it has another one, and what was left under that is of no use. */
static int make_database(const kw_disk *disk) {
  char name[PATH_ROOM];
  MDB_env *env = NULL;
  if (access(name_in(disk, DATA, name), F_OK) == 0) return 0;
  int rc = open_env(disk, COPY, MDB_NOLOCK, &env);
  if (rc == 0) rc = make_tables(env);
  if (env != NULL) mdb_env_close(env);
  return rc == 0 ? rename_in(disk, COPY, DATA) : rc;
}

/* Names last only once their directory was synced. Not all can be. */
static int sync_directory(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? 0 : errno;
  int rc = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return rc;
}

static int sync_names(const kw_disk *disk) {
  char parent[PATH_ROOM];
  int rc = sync_directory(disk->path);
  return rc == 0 ? sync_directory(name_in(disk, "..", parent)) : rc;
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

/* What LMDB believes, and would be fatal if it were false: it reads through memory. What it finds out by itself is left
 * to it, but for an empty file, which it takes for a new one. */
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

static int check_file(const kw_disk *disk) {
  char name[PATH_ROOM];
  struct stat st;
  int fd = open(name_in(disk, DATA, name), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int rc = fstat(fd, &st) < 0 ? errno : check_heads(fd, (size_t)st.st_size);
  close(fd);
  return rc;
}

static int open_tables(kw_disk *disk, int64_t *format) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &txn);
  if (rc != 0) return rc;
  rc = mdb_dbi_open(txn, "meta", 0, &disk->meta);
  if (rc == 0) *format = get_number(txn, disk->meta, "format", -1);
  if (rc == 0) rc = mdb_dbi_open(txn, "records", 0, &disk->records);
  if (rc == 0) rc = mdb_dbi_open(txn, "leases", 0, &disk->leases);
  if (rc == 0) rc = mdb_dbi_open(txn, "kept", 0, &disk->kept);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

static size_t pages_of(const kw_disk *disk, MDB_dbi dbi) {
  MDB_stat stat;
  if (mdb_stat(disk->reading, dbi, &stat) != 0) return 0;
  return stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
}

/* When it was opened, or the last group was taken. */
static void measure(kw_disk *disk) {
  MDB_envinfo info;
  mdb_env_info(disk->env, &info);
  size_t used = META_PAGES + pages_of(disk, FREE_DBI) + pages_of(disk, MAIN_DBI) +
                pages_of(disk, disk->meta) + pages_of(disk, disk->records) +
                pages_of(disk, disk->leases) + pages_of(disk, disk->kept);
  disk->size = (int64_t)((info.me_last_pgno + 1) * disk->page);
  disk->in_use = (int64_t)(used * disk->page);
}

static kw_disk_meta read_meta(const kw_disk *disk, MDB_txn *txn) {
  return (kw_disk_meta){.revision = get_number(txn, disk->meta, "revision", 1),
                        .compact_revision = get_number(txn, disk->meta, "compact_revision", -1),
                        .compacted_until = get_number(txn, disk->meta, "compacted_until", 0),
                        .alarms = get_number(txn, disk->meta, "alarms", 0)};
}

static int begin_reading(kw_disk *disk) {
  MDB_stat stat;
  int rc = mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &disk->reading);
  if (rc == 0) rc = mdb_cursor_open(disk->reading, disk->records, &disk->cursor);
  if (rc != 0) return rc;
  mdb_env_stat(disk->env, &stat);
  disk->page = stat.ms_psize;
  measure(disk);
  disk->opened = read_meta(disk, disk->reading);
  return 0;
}

/* The database of a file, with its reader. */
static int open_database(kw_disk *disk, const char *file, const char *lock_file, int64_t *format) {
  int rc = make_lock_file(disk, lock_file);
  if (rc == 0) rc = open_env(disk, file, MDB_NOTLS | MDB_NORDAHEAD, &disk->env);
  if (rc == 0) rc = open_tables(disk, format);
  if (rc == 0) rc = begin_reading(disk);
  if (rc == 0) disk->shared = kw_alloc(sizeof *disk->shared);
  if (rc == 0 && disk->shared == NULL) rc = ENOMEM;
  if (rc == 0) *disk->shared = (shared){.env = disk->env, .refs = 1};
  return rc;
}

static int open_directory(kw_disk *disk, char *text) {
  int64_t format = FORMAT;
  unlink_in(disk, COPY); /* that was not finished */
  unlink_in(disk, LOCK_OF_COPY);
  int rc = make_database(disk);
  if (rc == 0) rc = sync_names(disk);
  if (rc == 0) rc = check_file(disk);
  if (rc == 0) rc = open_database(disk, DATA, LOCK_OF_DATA, &format);
  if (format != FORMAT) return refuse(text, disk->path, "its format is not one of this keywatch");
  if (rc == INCOMPLETE) return refuse(text, disk->path, "its database has lost its end");
  if (rc == MDB_NOTFOUND) return refuse(text, disk->path, "its database is not one of keywatch");
  return rc == 0 ? KW_OK : refuse(text, disk->path, mdb_strerror(rc));
}

static void release_shared(shared *s) {
  if (__atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  mdb_env_close(s->env);
  kw_free(s);
}

static shared *retain_shared(shared *s) {
  __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
  return s;
}

static void close_database(kw_disk *disk) {
  if (disk->cursor != NULL) mdb_cursor_close(disk->cursor);
  if (disk->reading != NULL) mdb_txn_abort(disk->reading);
  if (disk->shared != NULL) {
    release_shared(disk->shared);
  } else if (disk->env != NULL) {
    mdb_env_close(disk->env);
  }
}

/* A group holds on to what is kept until it was taken. */
static void release_kept(group *g) {
  for (size_t i = 0; i < g->n && g->n_kept > 0; i++) {
    const change *c = &g->changes[i];
    if (c->kind != PUT_KEPT && c->kind != REMOVE_KEPT) continue;
    kw_blob_release(c->name);
    if (c->kept != NULL) kw_blob_release(c->kept);
    g->n_kept--;
  }
}

int kw_disk_open(const char *path, size_t map_bytes, kw_disk **result, char text[KW_DISK_TEXT]) {
  kw_disk *disk = kw_alloc_zeroed(sizeof *disk);
  if (disk == NULL) return KW_ERR_NO_MEMORY;
  disk->lock = -1;
  disk->map_bytes = map_bytes;
  disk->pid = getpid();
  pthread_mutex_init(&disk->mutex, NULL);
  pthread_cond_init(&disk->changed, NULL);
  int rc = KW_OK;
  if (strlen(path) < DIRECTORY_ROOM) {
    strcpy(disk->path, path);
  } else {
    rc = refuse(text, path, strerror(ENAMETOOLONG));
  }
  if (rc == KW_OK) rc = make_directory(path, text);
  if (rc == KW_OK) rc = lock(disk, text);
  if (rc == KW_OK) rc = open_directory(disk, text);
  if (rc == KW_OK && !start_thread(disk)) rc = refuse(text, path, "no thread can be started");
  if (rc != KW_OK) {
    kw_disk_close(disk);
    return rc;
  }
  *result = disk;
  return KW_OK;
}

bool kw_disk_is_inherited(const kw_disk *disk) {
  return disk->pid != getpid();
}

/* What a process has inherited is its parent's: it has no thread, and shares the place of the reader. */
static void close_own(kw_disk *disk) {
  if (kw_disk_is_inherited(disk)) return;
  end_thread(disk);
  kw_disk_set_bell(disk, (kw_bell){0});
  close_database(disk);
  pthread_cond_destroy(&disk->changed);
  pthread_mutex_destroy(&disk->mutex);
}

void kw_disk_close(kw_disk *disk) {
  close_own(disk);
  if (disk->lock >= 0) close(disk->lock);
  release_kept(&disk->gathering);
  release_kept(&disk->writing);
  kw_free(disk->gathering.changes);
  kw_free(disk->writing.changes);
  kw_free(disk);
}

void kw_disk_set_bell(kw_disk *disk, kw_bell bell) {
  pthread_mutex_lock(&disk->mutex);
  kw_bell before = disk->bell;
  disk->bell = bell;
  pthread_mutex_unlock(&disk->mutex);
  if (before.ring != NULL) before.release(before.ctx);
}

kw_disk_meta kw_disk_get_meta(const kw_disk *disk) {
  return disk->opened;
}

size_t kw_disk_records(const kw_disk *disk) {
  MDB_stat stat;
  return mdb_stat(disk->reading, disk->records, &stat) == 0 ? stat.ms_entries : 0;
}

const char *kw_disk_path(const kw_disk *disk) {
  return disk->path;
}

/* }====== */

/* {====== Writing ====== */

static bool add(kw_disk *disk, change c) {
  group *g = &disk->gathering;
  if (!kw_reserve(&g->changes, &g->cap, g->n + 1, sizeof *g->changes)) return false;
  g->changes[g->n++] = c;
  return true;
}

bool kw_disk_put(kw_disk *disk, kw_revision rev, bool tombstone, const kw_blob *record) {
  return add(
      disk,
      (change){
          .kind = PUT, .main = rev.main, .sub = rev.sub, .tombstone = tombstone, .record = record});
}

bool kw_disk_remove(kw_disk *disk, kw_revision rev, bool tombstone) {
  return add(disk,
             (change){.kind = REMOVE, .main = rev.main, .sub = rev.sub, .tombstone = tombstone});
}

bool kw_disk_put_lease(kw_disk *disk, int64_t id, int64_t ttl) {
  return add(disk, (change){.kind = PUT_LEASE, .main = id, .ttl = ttl});
}

bool kw_disk_remove_lease(kw_disk *disk, int64_t id) {
  return add(disk, (change){.kind = REMOVE_LEASE, .main = id});
}

static bool add_kept(kw_disk *disk, change c) {
  if (!add(disk, c)) return false;
  kw_blob_retain(c.name);
  if (c.kept != NULL) kw_blob_retain(c.kept);
  disk->gathering.n_kept++;
  return true;
}

bool kw_disk_put_kept(kw_disk *disk, kw_blob *name, kw_blob *bytes) {
  return add_kept(disk, (change){.kind = PUT_KEPT, .name = name, .kept = bytes});
}

bool kw_disk_remove_kept(kw_disk *disk, kw_blob *name) {
  return add_kept(disk, (change){.kind = REMOVE_KEPT, .name = name});
}

void kw_disk_undo(kw_disk *disk) {
  disk->gathering.n--;
}

bool kw_disk_reserve(kw_disk *disk, size_t n) {
  group *g = &disk->gathering;
  return kw_reserve(&g->changes, &g->cap, g->n + n, sizeof *g->changes);
}

size_t kw_disk_count(const kw_disk *disk) {
  return disk->gathering.n;
}

static void keep_removals(group *to, const group *from) {
  size_t n = to == from ? 0 : to->n;
  for (size_t i = 0; i < from->n; i++) {
    if (from->changes[i].kind == REMOVE) to->changes[n++] = from->changes[i];
  }
  to->n = n;
}

int kw_disk_forget(kw_disk *disk) {
  group *g = &disk->gathering;
  release_kept(g);
  release_kept(&disk->writing);
  keep_removals(g, g);
  keep_removals(&disk->writing, &disk->writing);
  if (!kw_reserve(&g->changes, &g->cap, g->n + disk->writing.n, sizeof *g->changes))
    return KW_ERR_NO_MEMORY;
  keep_removals(g, &disk->writing);
  disk->writing.n = 0;
  return KW_OK;
}

bool kw_disk_is_idle(const kw_disk *disk) {
  pthread_mutex_t *mutex = (pthread_mutex_t *)&disk->mutex;
  pthread_mutex_lock(mutex);
  bool is_idle = disk->work == IDLE;
  pthread_mutex_unlock(mutex);
  return is_idle;
}

void kw_disk_submit(kw_disk *disk, const kw_disk_meta *meta, bool defragment) {
  group handed = disk->gathering;
  handed.meta = *meta;
  handed.defragment = defragment;
  disk->gathering = disk->writing; /* its memory is used again */
  disk->gathering.n = 0;
  pthread_mutex_lock(&disk->mutex);
  disk->writing = handed;
  disk->work = SUBMITTED;
  pthread_cond_broadcast(&disk->changed);
  pthread_mutex_unlock(&disk->mutex);
}

/* The reader moves on to what the group has left. */
static int renew(kw_disk *disk) {
  disk->is_placed = false;
  mdb_txn_reset(disk->reading);
  int rc = mdb_txn_renew(disk->reading);
  if (rc == 0) rc = mdb_cursor_renew(disk->reading, disk->cursor);
  if (rc == 0) measure(disk);
  return rc == 0 ? KW_OK : KW_ERR_STORAGE;
}

/* The copy is opened, and then takes the place of what it is a copy of. *is_swapped says whether it did. */
static int swap(kw_disk *disk, bool *is_swapped) {
  kw_disk new = {.map_bytes = disk->map_bytes};
  int64_t format;
  strcpy(new.path, disk->path);
  int rc = open_database(&new, COPY, LOCK_OF_COPY, &format);
  if (rc == 0) rc = rename_in(disk, COPY, DATA);
  *is_swapped = rc == 0;
  if (rc != 0) {
    close_database(&new);
    unlink_in(disk, COPY);
    unlink_in(disk, LOCK_OF_COPY);
    return rc;
  }
  close_database(disk);
  disk->env = new.env;
  disk->shared = new.shared;
  disk->records = new.records;
  disk->leases = new.leases;
  disk->meta = new.meta;
  disk->kept = new.kept;
  disk->reading = new.reading;
  disk->cursor = new.cursor;
  disk->is_placed = false;
  measure(disk);
  rename_in(disk, LOCK_OF_COPY, LOCK_OF_DATA);
  return sync_directory(disk->path);
}

/* The reader moves on; if the group has left a copy, to that. A swap that might not last is the end of writing. */
static int move_on(kw_disk *disk) {
  bool is_swapped = false;
  if (disk->writing.defragment && disk->copied == 0) disk->copied = swap(disk, &is_swapped);
  if (is_swapped) return disk->copied == 0 ? KW_OK : KW_ERR_STORAGE;
  return renew(disk);
}

int kw_disk_defragmented(const kw_disk *disk) {
  if (disk->copied == 0) return KW_OK;
  return disk->copied == ENOSPC ? KW_ERR_NO_SPACE : KW_ERR_STORAGE;
}

bool kw_disk_take(kw_disk *disk, bool wait, kw_disk_meta *meta, int *rc) {
  pthread_mutex_lock(&disk->mutex);
  while (wait && disk->work == SUBMITTED) pthread_cond_wait(&disk->changed, &disk->mutex);
  bool is_done = disk->work == DONE;
  if (is_done) disk->work = IDLE;
  pthread_mutex_unlock(&disk->mutex);
  if (!is_done) return false;
  release_kept(&disk->writing);
  *meta = disk->writing.meta;
  *rc = disk->rc == KW_OK ? move_on(disk) : disk->rc;
  return true;
}

/* }====== */

/* {====== Reading ====== */

int kw_disk_read(const kw_disk *disk, kw_revision rev, bool tombstone, kw_slice *record) {
  uint8_t bytes[RECORD_KEY];
  MDB_val key = record_key(bytes, rev.main, rev.sub, tombstone), value;
  if (mdb_get(disk->reading, disk->records, &key, &value) != 0) return KW_ERR_CORRUPT;
  *record = kw_slice_of(value.mv_data, value.mv_size);
  return KW_OK;
}

static kw_disk_entry entry_of(const MDB_val *key, const MDB_val *value) {
  const uint8_t *at = key->mv_data;
  return (kw_disk_entry){.rev = {(int64_t)get_big(at, 8), (uint32_t)get_big(at + 8, 4)},
                         .tombstone = at[12] != 0,
                         .record = kw_slice_of(value->mv_data, value->mv_size)};
}

/* Whether the cursor has found something with a key, and a value, of the right length. */
static bool has_found(kw_disk *disk, int rc, const MDB_val *key, size_t key_len, bool is_good) {
  bool ok = rc == 0 && key->mv_size == key_len && is_good;
  if (!ok && rc != MDB_NOTFOUND) disk->is_damaged = true;
  return ok;
}

bool kw_disk_is_damaged(const kw_disk *disk) {
  return disk->is_damaged;
}

/* Whoever goes on where he was needs no search. */
bool kw_disk_next(kw_disk *disk, kw_revision rev, kw_disk_entry *entry) {
  uint8_t bytes[RECORD_KEY];
  MDB_val key = record_key(bytes, rev.main, rev.sub, false), value;
  bool goes_on = disk->is_placed && kw_revision_compare(disk->next, rev) == 0;
  int rc = mdb_cursor_get(disk->cursor, &key, &value, goes_on ? MDB_NEXT : MDB_SET_RANGE);
  disk->is_placed = has_found(disk, rc, &key, RECORD_KEY, true);
  if (!disk->is_placed) return false;
  *entry = entry_of(&key, &value);
  disk->next = (kw_revision){.main = entry->rev.main, .sub = entry->rev.sub + 1};
  return true;
}

static int64_t lease_of(const MDB_val *key) {
  return (int64_t)(get_big(key->mv_data, 8) ^ UINT64_C(1) << 63);
}

bool kw_disk_next_lease(kw_disk *disk, const int64_t *after, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  MDB_cursor *cursor;
  MDB_val key = lease_key(bytes, after == NULL ? INT64_MIN : *after), value = {0};
  int rc = mdb_cursor_open(disk->reading, disk->leases, &cursor);
  if (rc == 0) {
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    if (rc == 0 && after != NULL) rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    mdb_cursor_close(cursor);
  }
  if (!has_found(disk, rc, &key, 8, value.mv_size == 8)) return false;
  *id = lease_of(&key);
  *ttl = (int64_t)get_big(value.mv_data, 8);
  return true;
}

bool kw_disk_next_kept(kw_disk *disk, kw_slice *name, kw_slice *bytes) {
  MDB_cursor *cursor;
  MDB_val key = {name->len, (void *)name->data}, value;
  if (mdb_cursor_open(disk->reading, disk->kept, &cursor) != 0) return false;
  int rc = mdb_cursor_get(cursor, &key, &value, name->len == 0 ? MDB_FIRST : MDB_SET_RANGE);
  if (rc == 0 && kw_slice_equal(*name, kw_slice_of(key.mv_data, key.mv_size)))
    rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  mdb_cursor_close(cursor);
  if (rc != 0) return false;
  *name = kw_slice_of(key.mv_data, key.mv_size);
  *bytes = kw_slice_of(value.mv_data, value.mv_size);
  return true;
}

int64_t kw_disk_get_size(const kw_disk *disk, int64_t *in_use) {
  *in_use = disk->in_use;
  return disk->size;
}

/* }====== */

/* {====== Views ====== */

struct kw_disk_view {
  shared *shared;
  MDB_txn *txn;
  MDB_cursor *records;
  MDB_cursor *leases;
  kw_disk_meta meta;
  bool is_negative; /* the ids that are walked: they come last */
  bool has_leases;  /* the walk of those has begun */
};

int kw_disk_view_open(kw_disk *disk, kw_disk_view **result) {
  kw_disk_view *view = kw_alloc_zeroed(sizeof *view);
  if (view == NULL) return KW_ERR_NO_MEMORY;
  view->shared = retain_shared(disk->shared);
  int rc = mdb_txn_begin(disk->env, NULL, MDB_RDONLY, &view->txn);
  if (rc == 0) rc = mdb_cursor_open(view->txn, disk->records, &view->records);
  if (rc == 0) rc = mdb_cursor_open(view->txn, disk->leases, &view->leases);
  if (rc != 0) {
    kw_disk_view_close(view);
    return rc == ENOMEM ? KW_ERR_NO_MEMORY : KW_ERR_STORAGE;
  }
  view->meta = read_meta(disk, view->txn);
  *result = view;
  return KW_OK;
}

void kw_disk_view_close(kw_disk_view *view) {
  if (view->leases != NULL) mdb_cursor_close(view->leases);
  if (view->records != NULL) mdb_cursor_close(view->records);
  if (view->txn != NULL) mdb_txn_abort(view->txn);
  release_shared(view->shared);
  kw_free(view);
}

kw_disk_meta kw_disk_view_meta(const kw_disk_view *view) {
  return view->meta;
}

int kw_disk_view_next(kw_disk_view *view, kw_disk_entry *entry) {
  MDB_val key, value;
  int rc = mdb_cursor_get(view->records, &key, &value, MDB_NEXT);
  if (rc != 0) return rc == MDB_NOTFOUND ? 0 : KW_ERR_STORAGE;
  *entry = entry_of(&key, &value);
  return 1;
}

/* Those that are not negative; then, from the beginning, those that are. */
int kw_disk_view_next_lease(kw_disk_view *view, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  MDB_val key = lease_key(bytes, 0), value;
  int rc = mdb_cursor_get(view->leases, &key, &value, view->has_leases ? MDB_NEXT : MDB_SET_RANGE);
  view->has_leases = true;
  if (rc == MDB_NOTFOUND && !view->is_negative) {
    view->is_negative = true;
    rc = mdb_cursor_get(view->leases, &key, &value, MDB_FIRST);
  }
  if (rc != 0) return rc == MDB_NOTFOUND ? 0 : KW_ERR_STORAGE;
  *id = lease_of(&key);
  *ttl = (int64_t)get_big(value.mv_data, 8);
  return view->is_negative && *id >= 0 ? 0 : 1;
}

/* }====== */
