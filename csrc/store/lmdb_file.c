/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* fallocate */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/lmdb_file.h"

#include "base/directory.h"
#include "base/mem.h"
#include "model/error.h"

#define TABLES 4
#define META_PAGES 2
#define MAIN 1                  /* LMDB's own table of tables */
#define AHEAD_BYTES (128 << 10) /* that one call reads ahead */
#define LOCK_BYTES (16 << 10)   /* more than LMDB's own lock file needs */

bool kw_lmdb_is_no_room(int rc) {
  return kw_is_no_room(rc) || rc == MDB_MAP_FULL;
}

int kw_lmdb_error(int rc) {
  if (rc == 0) return KW_OK;
  if (rc == MDB_MAP_FULL) return KW_ERR_NO_SPACE;
  return rc == ENOMEM ? KW_ERR_NO_MEMORY : kw_error_of_errno(rc);
}

/* Where a file system cannot allocate, posix_fallocate writes zeros, also over what another thread writes meanwhile. */
int kw_lmdb_allocate(int fd, off_t from, off_t until) {
  int rc;
  do {
    rc = fallocate(fd, 0, from, until - from) < 0 ? errno : 0;
  } while (rc == EINTR);
  return rc == EOPNOTSUPP || rc == ENOSYS || rc == EINVAL ? 0 : rc;
}

int kw_lmdb_file_fd(const kw_lmdb_file *file) {
  mdb_filehandle_t fd = -1;
  mdb_env_get_fd(file->env, &fd);
  return fd;
}

off_t kw_lmdb_file_used(const kw_lmdb_file *file) {
  MDB_envinfo info;
  mdb_env_info(file->env, &info);
  return (off_t)((info.me_last_pgno + 1) * file->page);
}

off_t kw_lmdb_file_limit(const kw_lmdb_file *file) {
  MDB_envinfo info;
  mdb_env_info(file->env, &info);
  return (off_t)info.me_mapsize;
}

/* Linux reads no more for one call than its read-ahead of a file, which is 128 KiB by default. A system that does not
 * read ahead reads each page when the page is needed. */
void kw_lmdb_file_read_ahead(const kw_lmdb_file *file, off_t from, off_t until) {
  int fd = kw_lmdb_file_fd(file);
  for (; from < until; from += AHEAD_BYTES)
    posix_fadvise(fd, from, AHEAD_BYTES, POSIX_FADV_WILLNEED);
}

static size_t pages_of(MDB_txn *txn, MDB_dbi dbi) {
  MDB_stat stat;
  if (mdb_stat(txn, dbi, &stat) != 0) return 0;
  return stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
}

int64_t kw_lmdb_file_in_use(const kw_lmdb_file *file, MDB_txn *txn) {
  size_t pages = META_PAGES + pages_of(txn, KW_LMDB_FREE) + pages_of(txn, MAIN) +
                 pages_of(txn, file->meta) + pages_of(txn, file->records) +
                 pages_of(txn, file->leases) + pages_of(txn, file->rows);
  return (int64_t)(pages * file->page);
}

/* {====== Numbers ====== */

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

int kw_lmdb_put_meta(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_meta *meta) {
  int rc = put_number(txn, file->meta, "revision", meta->revision);
  if (rc == 0) rc = put_number(txn, file->meta, "compact_revision", meta->compact_revision);
  if (rc == 0) rc = put_number(txn, file->meta, "compacted_until", meta->compacted_until);
  if (rc == 0) rc = put_number(txn, file->meta, "alarms", meta->alarms);
  if (rc == 0) rc = put_number(txn, file->meta, "sequence", meta->sequence);
  return rc;
}

kw_database_identity kw_lmdb_get_identity(const kw_lmdb_file *file, MDB_txn *txn) {
  return (kw_database_identity){.id = (uint64_t)get_number(txn, file->meta, "id", 0),
                                .epoch = (uint64_t)get_number(txn, file->meta, "epoch", 0)};
}

int kw_lmdb_put_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity identity) {
  int rc = put_number(txn, file->meta, "id", (int64_t)identity.id);
  if (rc == 0) rc = put_number(txn, file->meta, "epoch", (int64_t)identity.epoch);
  if (rc == 0) rc = put_number(txn, file->meta, "format", KW_LMDB_FORMAT_JOURNAL);
  return rc;
}

int kw_lmdb_set_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool is_unfinished) {
  MDB_val key = name_of("unfinished");
  if (is_unfinished) return put_number(txn, file->meta, "unfinished", 1);
  int rc = mdb_del(txn, file->meta, &key, NULL);
  return rc == MDB_NOTFOUND ? 0 : rc;
}

bool kw_lmdb_is_unfinished(const kw_lmdb_file *file, MDB_txn *txn) {
  return get_number(txn, file->meta, "unfinished", 0) != 0;
}

kw_commit_meta kw_lmdb_get_meta(const kw_lmdb_file *file, MDB_txn *txn) {
  return (kw_commit_meta){.revision = get_number(txn, file->meta, "revision", 1),
                          .compact_revision = get_number(txn, file->meta, "compact_revision", -1),
                          .compacted_until = get_number(txn, file->meta, "compacted_until", 0),
                          .alarms = get_number(txn, file->meta, "alarms", 0),
                          .sequence = get_number(txn, file->meta, "sequence", 0)};
}

/* }====== */

int kw_lmdb_next_row(const kw_lmdb_file *file, MDB_txn *txn, kw_slice *name, kw_slice *bytes) {
  MDB_cursor *cursor;
  MDB_val key = {name->len, (void *)name->data}, value = {0};
  int rc = mdb_cursor_open(txn, file->rows, &cursor);
  if (rc != 0) return rc;
  rc = mdb_cursor_get(cursor, &key, &value, name->len == 0 ? MDB_FIRST : MDB_SET_RANGE);
  if (rc == 0 && kw_slice_equal(*name, kw_slice_of(key.mv_data, key.mv_size)))
    rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  mdb_cursor_close(cursor);
  if (rc != 0) return rc;
  *name = kw_slice_of(key.mv_data, key.mv_size);
  *bytes = kw_slice_of(value.mv_data, value.mv_size);
  return 0;
}

/* {====== Making ====== */

/* LMDB writes to its lock file through a memory map, where a full disk would kill the process. */
static int make_lock_file(const char *directory, const char *file_name) {
  char name[KW_NAME_ROOM];
  int fd = open(kw_directory_name(directory, file_name, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int rc = kw_lmdb_allocate(fd, 0, LOCK_BYTES);
  close(fd);
  return rc;
}

static int open_env(const char *directory, const char *file_name, size_t map_bytes, unsigned flags,
                    MDB_env **env) {
  char name[KW_NAME_ROOM];
  int rc = mdb_env_create(env);
  if (rc == 0) rc = mdb_env_set_maxdbs(*env, TABLES);
  if (rc == 0) rc = mdb_env_set_mapsize(*env, map_bytes);
  if (rc == 0)
    rc = mdb_env_open(*env, kw_directory_name(directory, file_name, name), MDB_NOSUBDIR | flags,
                      0600);
  return rc;
}

/* Allocates the first pages, so that a full disk is met here and not inside of a commit. */
static int make_pages(MDB_env *env) {
  MDB_stat stat;
  mdb_filehandle_t fd;
  mdb_env_stat(env, &stat);
  mdb_env_get_fd(env, &fd);
  return kw_lmdb_allocate(fd, 0, (off_t)(KW_LMDB_PAGES_PER_WRITE * stat.ms_psize));
}

static int make_tables(MDB_env *env) {
  static const char *const others[] = {"records", "leases", "kept"};
  MDB_txn *txn;
  MDB_dbi meta, other;
  int rc = mdb_txn_begin(env, NULL, 0, &txn);
  if (rc != 0) return rc;
  rc = mdb_dbi_open(txn, "meta", MDB_CREATE, &meta);
  if (rc == 0) rc = put_number(txn, meta, "format", KW_LMDB_FORMAT);
  for (size_t i = 0; i < KW_LENGTH(others) && rc == 0; i++)
    rc = mdb_dbi_open(txn, others[i], MDB_CREATE, &other);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

int kw_lmdb_file_rename(const char *directory, const char *from, const char *to) {
  char old[KW_NAME_ROOM], new[KW_NAME_ROOM];
  kw_directory_name(directory, from, old);
  return rename(old, kw_directory_name(directory, to, new)) < 0 ? errno : 0;
}

int kw_lmdb_file_make(const char *directory, const char *file_name, const char *partial,
                      size_t map_bytes) {
  char name[KW_NAME_ROOM];
  MDB_env *env = NULL;
  if (access(kw_directory_name(directory, file_name, name), F_OK) == 0) return 0;
  int rc = open_env(directory, partial, map_bytes, MDB_NOLOCK, &env);
  if (rc == 0) rc = make_pages(env);
  if (rc == 0) rc = make_tables(env);
  if (env != NULL) mdb_env_close(env);
  return rc == 0 ? kw_lmdb_file_rename(directory, partial, file_name) : rc;
}

/* }====== */

/* {====== Checking ====== */

/* LMDB's meta page, which a file has twice at its beginning: the one of the later transaction counts. */
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

/* Errors that LMDB finds itself are left to LMDB (0), except for an empty file, which LMDB takes for a new one. */
static int check_heads(int fd, size_t size) {
  head one, other;
  if (size == 0) return KW_LMDB_INCOMPLETE;
  if (!kw_file_read(fd, &one, sizeof one, 0) || one.magic != MAGIC) return 0;
  size_t page = one.tables[0].page_bytes;
  if (!kw_file_read(fd, &other, sizeof other, (int64_t)page) || other.magic != MAGIC) return 0;
  const head *last = other.txn > one.txn ? &other : &one;
  if (page < sizeof one || other.tables[0].page_bytes != page) return MDB_CORRUPTED;
  if (last->last_page >= size / page) return KW_LMDB_INCOMPLETE;
  bool ok = is_page(last, last->tables[0].root) && is_page(last, last->tables[1].root);
  unsigned flags = last->tables[0].flags[0] | last->tables[1].flags[0];
  return ok && !(flags & MDB_DUPSORT) ? 0 : MDB_CORRUPTED;
}

int kw_lmdb_file_check(const char *directory, const char *file_name) {
  char name[KW_NAME_ROOM];
  struct stat st;
  int fd = open(kw_directory_name(directory, file_name, name), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int rc = fstat(fd, &st) < 0 ? errno : check_heads(fd, (size_t)st.st_size);
  close(fd);
  return rc;
}

/* }====== */

/* {====== Opening ====== */

static int open_tables(kw_lmdb_file *file, int64_t *format) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
  if (rc != 0) return rc;
  rc = mdb_dbi_open(txn, "meta", 0, &file->meta);
  if (rc == 0) *format = get_number(txn, file->meta, "format", -1);
  if (rc == 0) rc = mdb_dbi_open(txn, "records", 0, &file->records);
  if (rc == 0) rc = mdb_dbi_open(txn, "leases", 0, &file->leases);
  if (rc == 0) rc = mdb_dbi_open(txn, "kept", 0, &file->rows);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

static int open_descriptor(kw_lmdb_file *file, const char *directory, const char *file_name) {
  char name[KW_NAME_ROOM];
  file->fd = open(kw_directory_name(directory, file_name, name), O_RDWR | O_CLOEXEC);
  return file->fd < 0 ? errno : 0;
}

int kw_lmdb_file_open(const char *directory, const char *name, const char *lock_name,
                      size_t map_bytes, kw_lmdb_file **result, int64_t *format) {
  MDB_stat stat;
  kw_lmdb_file *file = *result = kw_alloc_zeroed(sizeof *file);
  if (file == NULL) return ENOMEM;
  file->refs = 1;
  file->fd = -1;
  int rc = make_lock_file(directory, lock_name);
  if (rc == 0) rc = open_env(directory, name, map_bytes, MDB_NOTLS | MDB_NORDAHEAD, &file->env);
  if (rc == 0) rc = open_tables(file, format);
  if (rc == 0) rc = open_descriptor(file, directory, name);
  if (rc != 0) return rc;
  mdb_env_stat(file->env, &stat);
  file->page = stat.ms_psize;
  return 0;
}

kw_lmdb_file *kw_lmdb_file_retain(kw_lmdb_file *file) {
  __atomic_add_fetch(&file->refs, 1, __ATOMIC_RELAXED);
  return file;
}

void kw_lmdb_file_release(kw_lmdb_file *file) {
  if (__atomic_sub_fetch(&file->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  if (file->env != NULL) mdb_env_close(file->env);
  if (file->fd >= 0) close(file->fd);
  kw_free(file);
}

/* }====== */
