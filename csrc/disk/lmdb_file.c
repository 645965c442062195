/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* fallocate */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "disk/lmdb_file.h"

#include "base/directory.h"
#include "base/mem.h"
#include "disk/lmdb_check.h"

#define META_PAGES 2
#define LOCK_BYTES (16 << 10) /* more than LMDB's own lock file needs */

bool kw_lmdb_is_no_room(int rc) {
  return kw_is_no_room(rc) || rc == MDB_MAP_FULL;
}

int kw_lmdb_error(int rc) {
  if (rc == 0) return KW_OK;
  if (rc == MDB_MAP_FULL) return KW_ERR_NO_SPACE;
  return rc == ENOMEM ? KW_ERR_NO_MEMORY : kw_error_of_errno(rc);
}

/* Not posix_fallocate: if a file system cannot allocate, it writes zeros, even over bytes that another thread is
 * writing. */
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

static size_t pages_of(MDB_txn *txn, MDB_dbi dbi) {
  MDB_stat stat;
  if (mdb_stat(txn, dbi, &stat) != 0) return 0;
  return stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
}

int64_t kw_lmdb_file_in_use(const kw_lmdb_file *file, MDB_txn *txn) {
  size_t pages = META_PAGES + pages_of(txn, KW_LMDB_FREE) + pages_of(txn, KW_LMDB_MAIN);
  for (int i = 0; i < KW_LMDB_TABLES; i++) pages += pages_of(txn, file->tables[i]);
  return (int64_t)(pages * file->page);
}

static MDB_val name_of(const char *name) {
  return (MDB_val){strlen(name), (void *)name};
}

/* {====== Values ====== */

int kw_lmdb_put(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_table table, MDB_val key,
                kw_slice value, unsigned flags) {
  MDB_val to = {value.len + KW_LMDB_CHECKSUM, NULL};
  uint32_t crc = kw_lmdb_checksum(table, kw_slice_of(key.mv_data, key.mv_size), value);
  int rc = mdb_put(txn, file->tables[table], &key, &to, flags | MDB_RESERVE);
  if (rc != 0) return rc;
  if (value.len > 0) memcpy(to.mv_data, value.data, value.len);
  kw_big_endian_put32((uint8_t *)to.mv_data + value.len, crc);
  return 0;
}

/* LMDB's entry of a table ends with the root of the table's tree. */
int kw_lmdb_trees(const kw_lmdb_file *file, MDB_txn *txn, kw_lmdb_tree trees[KW_LMDB_TABLES]) {
  size_t n = (size_t)kw_lmdb_file_used(file) / file->page, root;
  for (int i = 0; i < KW_LMDB_TABLES; i++) {
    MDB_val key = name_of(kw_lmdb_names[i]), value;
    int rc = mdb_get(txn, KW_LMDB_MAIN, &key, &value);
    if (rc != 0) return rc;
    if (value.mv_size != KW_LMDB_TREE || n > file->map_bytes / file->page) return MDB_CORRUPTED;
    memcpy(&root, (const uint8_t *)value.mv_data + KW_LMDB_TREE - sizeof root, sizeof root);
    trees[i] =
        (kw_lmdb_tree){.pages = {.map = file->map, .page = file->page, .n = n}, .root = root};
  }
  return 0;
}

/* }====== */

/* {====== Numbers ====== */

static int put_number(const kw_lmdb_file *file, MDB_txn *txn, const char *name, int64_t v) {
  uint8_t bytes[8];
  kw_big_endian_put64(bytes, (uint64_t)v);
  return kw_lmdb_put(file, txn, KW_LMDB_META, name_of(name), kw_slice_of(bytes, 8), 0);
}

/* Reads an entry of meta of `len` bytes. Leaves *bytes unchanged if there is none. */
static int get_meta(const kw_lmdb_file *file, MDB_txn *txn, const char *name, size_t len,
                    const uint8_t **bytes) {
  MDB_val key = name_of(name), value;
  int rc = mdb_get(txn, file->tables[KW_LMDB_META], &key, &value);
  if (rc != 0) return rc == MDB_NOTFOUND ? 0 : rc;
  kw_slice found = kw_slice_of(value.mv_data, value.mv_size);
  if (!kw_lmdb_value_check(KW_LMDB_META, kw_slice_text(name), &found) || found.len != len)
    return MDB_CORRUPTED;
  *bytes = found.data;
  return 0;
}

/* Reads a number. Leaves *v unchanged if there is none. */
static int get_number(const kw_lmdb_file *file, MDB_txn *txn, const char *name, int64_t *v) {
  const uint8_t *bytes = NULL;
  int rc = get_meta(file, txn, name, 8, &bytes);
  if (bytes != NULL) *v = (int64_t)kw_big_endian_get64(bytes);
  return rc;
}

/* A number of meta, and its address in memory. */
typedef struct number {
  const char *name;
  int64_t *v;
} number;

static int put_numbers(const kw_lmdb_file *file, MDB_txn *txn, const number *all, size_t n) {
  int rc = 0;
  for (size_t i = 0; i < n && rc == 0; i++) rc = put_number(file, txn, all[i].name, *all[i].v);
  return rc;
}

static int get_numbers(const kw_lmdb_file *file, MDB_txn *txn, const number *all, size_t n) {
  int rc = 0;
  for (size_t i = 0; i < n && rc == 0; i++) rc = get_number(file, txn, all[i].name, all[i].v);
  return rc;
}

#define META_NUMBERS(meta)                                                                         \
  {                                                                                                \
    {"revision", &(meta)->revision}, {"compact_revision", &(meta)->compact_revision},              \
        {"compacted_until", &(meta)->compacted_until}, {"alarms", &(meta)->alarms}, {              \
      "sequence", &(meta)->sequence                                                                \
    }                                                                                              \
  }

int kw_lmdb_put_meta(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_meta *meta) {
  kw_commit_meta copy = *meta;
  const number all[] = META_NUMBERS(&copy);
  return put_numbers(file, txn, all, KW_LENGTH(all));
}

int kw_lmdb_get_meta(const kw_lmdb_file *file, MDB_txn *txn, kw_commit_meta *meta) {
  const number all[] = META_NUMBERS(meta);
  *meta = (kw_commit_meta){.revision = 1, .compact_revision = -1};
  return get_numbers(file, txn, all, KW_LENGTH(all));
}

int kw_lmdb_get_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity *identity) {
  int64_t id = 0, epoch = 0, has_journal = 0;
  const number all[] = {{"id", &id}, {"epoch", &epoch}, {"has_journal", &has_journal}};
  int rc = get_numbers(file, txn, all, KW_LENGTH(all));
  *identity = (kw_database_identity){(uint64_t)id, (uint64_t)epoch, has_journal != 0};
  return rc;
}

int kw_lmdb_put_identity(const kw_lmdb_file *file, MDB_txn *txn, kw_database_identity identity) {
  int64_t id = (int64_t)identity.id, epoch = (int64_t)identity.epoch;
  int64_t has_journal = identity.has_journal;
  const number all[] = {{"id", &id}, {"epoch", &epoch}, {"has_journal", &has_journal}};
  return put_numbers(file, txn, all, KW_LENGTH(all));
}

int kw_lmdb_set_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool is_unfinished) {
  return put_number(file, txn, "unfinished", is_unfinished);
}

int kw_lmdb_get_unfinished(const kw_lmdb_file *file, MDB_txn *txn, bool *is_unfinished) {
  int64_t v = 0;
  int rc = get_number(file, txn, "unfinished", &v);
  *is_unfinished = v != 0;
  return rc;
}

static int put_counts(const kw_lmdb_file *file, MDB_txn *txn) {
  uint8_t bytes[KW_LMDB_COUNTS];
  const uint8_t *before = NULL;
  MDB_stat stat;
  int rc = get_meta(file, txn, KW_LMDB_COUNTS_NAME, sizeof bytes, &before);
  uint64_t commits = before == NULL ? 0 : kw_big_endian_get64(before);
  uint8_t *to = kw_big_endian_put64(bytes, commits + 1);
  for (int i = KW_LMDB_META + 1; i < KW_LMDB_TABLES && rc == 0; i++) {
    rc = mdb_stat(txn, file->tables[i], &stat);
    to = kw_big_endian_put64(to, stat.ms_entries);
  }
  if (rc != 0) return rc;
  return kw_lmdb_put(file, txn, KW_LMDB_META, name_of(KW_LMDB_COUNTS_NAME),
                     kw_slice_of(bytes, sizeof bytes), 0);
}

/* If LMDB cannot write a meta page, it restores the old transaction of the page, but not its old trees. kw_lmdb_check
 * would then refuse the file, so the old page is written back. */
static int commit(const kw_lmdb_file *file, MDB_txn *txn) {
  uint8_t before[KW_LMDB_HEAD];
  size_t at = mdb_txn_id(txn) % META_PAGES * file->page;
  memcpy(before, file->map + at, sizeof before);
  int rc = mdb_txn_commit(txn);
  if (rc != 0 && memcmp(before, file->map + at, sizeof before) != 0)
    kw_file_write(file->fd, before, sizeof before, (int64_t)at);
  return rc;
}

int kw_lmdb_commit(const kw_lmdb_file *file, MDB_txn *txn) {
  int rc = put_counts(file, txn);
  if (rc == 0) return commit(file, txn);
  mdb_txn_abort(txn);
  return rc;
}

/* }====== */

/* {====== Making ====== */

/* LMDB writes its lock file through a memory map: on a full disk such a write would kill the process. */
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
  if (rc == 0) rc = mdb_env_set_maxdbs(*env, KW_LMDB_TABLES);
  if (rc == 0) rc = mdb_env_set_mapsize(*env, map_bytes);
  if (rc == 0)
    rc = mdb_env_open(*env, kw_directory_name(directory, file_name, name), MDB_NOSUBDIR | flags,
                      0600);
  return rc;
}

/* Allocates the first pages, so that a full disk is noticed here and not during a commit. */
static int make_pages(MDB_env *env) {
  MDB_stat stat;
  mdb_filehandle_t fd;
  mdb_env_stat(env, &stat);
  mdb_env_get_fd(env, &fd);
  return kw_lmdb_allocate(fd, 0, (off_t)(KW_LMDB_PAGES_PER_WRITE * stat.ms_psize));
}

static int make_tables(kw_lmdb_file *file) {
  kw_database_identity identity = {0};
  MDB_txn *txn;
  int rc = mdb_txn_begin(file->env, NULL, 0, &txn);
  if (rc != 0) return rc;
  for (int i = 0; i < KW_LMDB_TABLES && rc == 0; i++)
    rc = mdb_dbi_open(txn, kw_lmdb_names[i], MDB_CREATE, &file->tables[i]);
  if (rc == 0) rc = put_number(file, txn, KW_LMDB_FORMAT_NAME, KW_LMDB_FORMAT);
  if (rc == 0 && getentropy(&identity.id, sizeof identity.id) < 0) rc = errno;
  if (rc == 0) rc = kw_lmdb_put_identity(file, txn, identity);
  if (rc == 0) rc = put_counts(file, txn);
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
  kw_lmdb_file made = {0};
  if (access(kw_directory_name(directory, file_name, name), F_OK) == 0) return 0;
  int rc = open_env(directory, partial, map_bytes, MDB_NOLOCK, &made.env);
  if (rc == 0) rc = make_pages(made.env);
  if (rc == 0) rc = make_tables(&made);
  if (made.env != NULL) mdb_env_close(made.env);
  return rc == 0 ? kw_lmdb_file_rename(directory, partial, file_name) : rc;
}

/* }====== */

/* {====== Opening ====== */

static int open_tables(kw_lmdb_file *file) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(file->env, NULL, MDB_RDONLY, &txn);
  if (rc != 0) return rc;
  for (int i = 0; i < KW_LMDB_TABLES && rc == 0; i++)
    rc = mdb_dbi_open(txn, kw_lmdb_names[i], 0, &file->tables[i]);
  if (rc == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return rc;
}

static int open_descriptor(kw_lmdb_file *file, const char *directory, const char *file_name) {
  char name[KW_NAME_ROOM];
  file->fd = open(kw_directory_name(directory, file_name, name), O_RDWR | O_CLOEXEC);
  return file->fd < 0 ? errno : 0;
}

/* Turns read-ahead off, since most reads of an open store are of single records. */
static int map_file(kw_lmdb_file *file, size_t map_bytes) {
  void *map = mmap(NULL, map_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
  if (map == MAP_FAILED) return errno;
  madvise(map, map_bytes, MADV_RANDOM);
  file->map = map;
  file->map_bytes = map_bytes;
  return 0;
}

int kw_lmdb_file_open(const char *directory, const char *name, const char *lock_name,
                      size_t map_bytes, bool must_check, kw_lmdb_file **result) {
  MDB_stat stat;
  kw_lmdb_file *file = *result = kw_alloc_zeroed(sizeof *file);
  if (file == NULL) return ENOMEM;
  file->refs = 1;
  file->fd = -1;
  int rc = open_descriptor(file, directory, name);
  if (rc == 0) rc = map_file(file, map_bytes);
  if (rc == 0 && must_check) rc = kw_lmdb_check(file->fd, file->map, map_bytes);
  if (rc == 0) rc = make_lock_file(directory, lock_name);
  if (rc == 0) rc = open_env(directory, name, map_bytes, MDB_NOTLS | MDB_NORDAHEAD, &file->env);
  if (rc == 0) rc = open_tables(file);
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
  if (file->map != NULL) munmap((void *)file->map, file->map_bytes);
  if (file->fd >= 0) close(file->fd);
  kw_free(file);
}

/* }====== */
