/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* O_PATH */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/database.h"

#include "base/directory.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "disk/lmdb_check.h"
#include "disk/lmdb_file.h"
#include "disk/lmdb_write.h"
#include "model/error.h"

#define PID_ROOM 16
#define LOCK "lock"
#define DATA "data.mdb"
#define LOCK_OF_DATA "data.mdb-lock"
#define COPY "copy.mdb"
#define LOCK_OF_COPY "copy.mdb-lock"
#define ETCD "member" /* in every data directory of etcd */

struct kw_database {
  kw_lmdb_file *file;
  kw_lmdb_file *replaced;             /* see kw_database_close_replaced; NULL: none */
  MDB_txn *reading;                   /* the reader */
  kw_lmdb_tree trees[KW_LMDB_TABLES]; /* the trees that the reader sees */
  kw_lmdb_cursor cursor;              /* over records */
  bool is_before_next;                /* the cursor is just before `next` */
  kw_revision next;                   /* a kw_database_next from here continues the previous call */
  char path[KW_DIRECTORY_ROOM];       /* see resolve */
  size_t map_bytes;
  int directory; /* descriptor of the directory, valid even after the directory was moved */
  int lock;      /* descriptor of the lock file */
  pid_t pid;     /* of the process that opened the database */
  int64_t size;
  int64_t in_use;
  int walk_failure;      /* see kw_database_walk_failure */
  kw_commit_meta opened; /* numbers that were durable when the database was opened */
  kw_database_identity identity;
};

void kw_fault_describe(const char *before, kw_fault fault, char text[KW_REASON_ROOM]) {
  int n = snprintf(text, KW_REASON_ROOM, "%.100s: %.100s", before, fault.what);
  if (fault.number != 0)
    snprintf(text + n, KW_REASON_ROOM - (size_t)n, ": %.100s (errno %d)",
             mdb_strerror(fault.number), fault.number);
}

/* {====== Opening ====== */

int kw_database_refuse(char text[KW_REASON_ROOM], const char *path, const char *why) {
  snprintf(text, KW_REASON_ROOM, "keywatch: cannot open %.360s: %.120s", path, why);
  return KW_ERR_STORAGE;
}

/* Like refuse, with the text of an errno, or of an error of LMDB. Returns KW_ERR_NO_SPACE or KW_ERR_STORAGE. */
static int refuse_errno(char *text, const char *path, int number) {
  kw_database_refuse(text, path, mdb_strerror(number));
  return kw_lmdb_is_no_room(number) ? KW_ERR_NO_SPACE : KW_ERR_STORAGE;
}

/* The process that holds the lock has written its id into the lock file. */
static int refuse_locked(char *text, const char *path, int fd) {
  char pid[PID_ROOM] = "", why[64];
  ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
  if (n > 0) pid[strcspn(pid, "\n")] = 0;
  snprintf(why, sizeof why, "process %s has it open", pid[0] != 0 ? pid : "?");
  return kw_database_refuse(text, path, why);
}

/* Succeeds even if the process id cannot be written: the directory is locked then, too. */
static int lock(kw_database *db, char *text) {
  char name[KW_NAME_ROOM], pid[PID_ROOM];
  db->lock = open(kw_directory_name(db->path, LOCK, name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (db->lock < 0) return refuse_errno(text, db->path, errno);
  if (flock(db->lock, LOCK_EX | LOCK_NB) < 0) return refuse_locked(text, db->path, db->lock);
  int n = snprintf(pid, sizeof pid, "%ld\n", (long)db->pid);
  bool has_pid = ftruncate(db->lock, 0) == 0 && pwrite(db->lock, pid, (size_t)n, 0) == n;
  (void)has_pid;
  return KW_OK;
}

static int make_directory(const char *path, char *text) {
  struct stat st;
  int rc = access(path, F_OK) == 0 ? 0 : kw_directory_make_parents(path);
  if (rc != 0) return refuse_errno(text, path, rc);
  if (mkdir(path, 0700) == 0) return KW_OK;
  if (errno != EEXIST) return refuse_errno(text, path, errno);
  if (stat(path, &st) < 0) return kw_database_refuse(text, path, strerror(errno));
  return S_ISDIR(st.st_mode) ? KW_OK : kw_database_refuse(text, path, "it is not a directory");
}

/* Opens the directory, and stores its absolute path without symbolic links: files are made in the directory all the
 * time, and the given path may soon lead to another directory. Stores the given path instead if there is no such
 * absolute path, if the path of a file in the directory would be too long for the system, or if the absolute path leads
 * to another directory, as that of another mount namespace, under /proc, does. */
static int resolve(kw_database *db, const char *path, char *text) {
  db->directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (db->directory < 0) return refuse_errno(text, path, errno);
  bool is_same = realpath(path, db->path) != NULL &&
                 strlen(db->path) < 2 * KW_DIRECTORY_ROOM - KW_NAME_ROOM &&
                 kw_file_identify(AT_FDCWD, db->path, db->directory) == KW_FILE_SAME;
  if (!is_same) strcpy(db->path, path);
  return KW_OK;
}

static bool has_file(const kw_database *db, const char *file_name) {
  char name[KW_NAME_ROOM];
  return access(kw_directory_name(db->path, file_name, name), F_OK) == 0;
}

/* Refuses a data directory of etcd: the store in it would be empty. */
static int check_owner(const kw_database *db, char *text) {
  if (!has_file(db, ETCD) || has_file(db, DATA)) return KW_OK;
  return kw_database_refuse(text, db->path,
                            "it is a data directory of etcd: make another one with "
                            "keywatch restore --skip-hash-check, from its file member/snap/db");
}

static void unlink_in(const kw_database *db, const char *file_name) {
  char name[KW_NAME_ROOM];
  unlink(kw_directory_name(db->path, file_name, name));
}

static int sync_names(const kw_database *db) {
  int rc = kw_directory_sync(db->path);
  return rc == 0 ? kw_directory_sync_parent(db->path) : rc;
}

/* Stores what the reader sees. Must be called whenever the reader has moved on. */
static int look_around(kw_database *db) {
  db->is_before_next = false;
  db->size = (int64_t)kw_lmdb_file_used(db->file);
  db->in_use = kw_lmdb_file_in_use(db->file, db->reading);
  return kw_lmdb_trees(db->file, db->reading, db->trees);
}

/* Opens a file, and begins to read it. `must_check` is that of kw_lmdb_file_open. */
static int open_file(kw_database *db, const char *name, const char *lock_name, bool must_check) {
  int rc = kw_lmdb_file_open(db->path, name, lock_name, db->map_bytes, must_check, &db->file);
  if (rc == 0) rc = mdb_txn_begin(db->file->env, NULL, MDB_RDONLY, &db->reading);
  if (rc == 0) rc = look_around(db);
  if (rc == 0) rc = kw_lmdb_get_meta(db->file, db->reading, &db->opened);
  if (rc == 0) rc = kw_lmdb_get_identity(db->file, db->reading, &db->identity);
  return rc;
}

static void end_reading(kw_database *db) {
  if (db->reading != NULL) mdb_txn_abort(db->reading);
}

static void close_file(kw_database *db) {
  end_reading(db);
  if (db->file != NULL) kw_lmdb_file_release(db->file);
}

/* Removes the remains of a commit group that a crash has interrupted between its parts. */
static int finish(kw_database *db) {
  bool is_unfinished;
  int rc = kw_lmdb_get_unfinished(db->file, db->reading, &is_unfinished);
  if (rc != 0 || !is_unfinished) return rc;
  mdb_txn_reset(db->reading); /* otherwise the pages that a removal frees could not be reused */
  rc = kw_lmdb_remove_unfinished(db->file);
  if (rc == 0 && kw_database_renew(db) != KW_OK) rc = EIO;
  return rc;
}

/* True if the process has too little address space for the map of the file. */
static bool lacks_addresses(const kw_database *db) {
  void *map =
      mmap(NULL, db->map_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return true;
  munmap(map, db->map_bytes);
  return false;
}

static int refuse_map(const kw_database *db, char *text) {
  char why[128];
  snprintf(why, sizeof why, "its map takes %zu MiB of addresses: see ulimit -v, or lower the quota",
           db->map_bytes >> 20);
  kw_database_refuse(text, db->path, why);
  return KW_ERR_NO_MEMORY;
}

static int refuse_damaged(const kw_database *db, const char *why, char *text) {
  kw_database_refuse(text, db->path, why);
  return KW_ERR_CORRUPT;
}

static int open_directory(kw_database *db, char *text) {
  unlink_in(db, COPY); /* left by a crash */
  unlink_in(db, LOCK_OF_COPY);
  int rc = kw_lmdb_file_make(db->path, DATA, COPY, db->map_bytes);
  if (rc == 0) rc = sync_names(db);
  if (rc == 0) rc = open_file(db, DATA, LOCK_OF_DATA, true);
  if (rc == 0) rc = finish(db);
  if (rc == ENOMEM && lacks_addresses(db)) return refuse_map(db, text);
  bool is_short = rc == ENOMEM && (db->file == NULL || db->file->env == NULL);
  if (is_short) return KW_ERR_NO_MEMORY;
  if (rc == KW_LMDB_OTHER_FORMAT)
    return kw_database_refuse(text, db->path, "it has the format of another version of keywatch");
  if (rc == KW_LMDB_INCOMPLETE) return refuse_damaged(db, "its database is truncated", text);
  if (rc == MDB_CORRUPTED)
    return refuse_damaged(db, "its database is damaged, or was not written by keywatch", text);
  if (kw_lmdb_is_no_room(rc)) return refuse_errno(text, db->path, rc);
  return rc == 0 ? KW_OK : kw_database_refuse(text, db->path, mdb_strerror(rc));
}

/* Makes the map large enough for the file, and for some bytes more. */
static void reserve_map(kw_database *db, size_t spare_bytes) {
  char name[KW_NAME_ROOM];
  struct stat st;
  if (stat(kw_directory_name(db->path, DATA, name), &st) < 0 || st.st_size <= 0) return;
  size_t need = (size_t)st.st_size + spare_bytes;
  if (need > db->map_bytes) db->map_bytes = need;
}

int kw_database_open(const char *path, size_t map_bytes, size_t spare_bytes, kw_database **result,
                     char text[KW_REASON_ROOM]) {
  if (strlen(path) >= KW_DIRECTORY_ROOM)
    return kw_database_refuse(text, path, strerror(ENAMETOOLONG));
  kw_database *db = kw_alloc_zeroed(sizeof *db);
  if (db == NULL) return KW_ERR_NO_MEMORY;
  db->directory = db->lock = -1;
  db->map_bytes = map_bytes;
  db->pid = kw_process_id();
  kw_file_guard_standard();
  int rc = make_directory(path, text);
  if (rc == KW_OK) rc = resolve(db, path, text);
  if (rc == KW_OK) rc = check_owner(db, text);
  if (rc == KW_OK) rc = lock(db, text);
  if (rc == KW_OK) reserve_map(db, spare_bytes);
  if (rc == KW_OK) rc = open_directory(db, text);
  if (rc != KW_OK) {
    kw_database_close(db);
    return rc;
  }
  *result = db;
  return KW_OK;
}

bool kw_database_is_inherited(const kw_database *db) {
  return db->pid != kw_process_id();
}

/* A child must not end the inherited read transaction, which shares its entry of the lock file with the parent's
 * transaction. */
void kw_database_close(kw_database *db) {
  if (!kw_database_is_inherited(db)) {
    kw_database_close_replaced(db);
    close_file(db);
  }
  if (db->lock >= 0) {
    if (!kw_database_is_inherited(db)) flock(db->lock, LOCK_UN); /* a child may have it open */
    close(db->lock);
  }
  if (db->directory >= 0) close(db->directory);
  kw_free(db);
}

kw_commit_meta kw_database_get_meta(const kw_database *db) {
  return db->opened;
}

kw_database_identity kw_database_get_identity(const kw_database *db) {
  return db->identity;
}

int kw_database_set_identity(kw_database *db, kw_database_identity identity) {
  int rc = kw_lmdb_error(kw_lmdb_write_identity(db->file, identity));
  if (rc == KW_OK) db->identity = identity;
  return rc;
}

int kw_database_recover(kw_database *db, const kw_commit_group *group) {
  int rc = kw_database_apply(db, group);
  if (rc == KW_OK) rc = kw_database_renew(db);
  if (rc == KW_OK) rc = kw_lmdb_error(kw_lmdb_get_meta(db->file, db->reading, &db->opened));
  return rc;
}

bool kw_database_is_in_place(const kw_database *db) {
  char name[KW_NAME_ROOM];
  return kw_file_identify(AT_FDCWD, kw_directory_name(db->path, LOCK, name), db->lock) ==
         KW_FILE_SAME;
}

bool kw_database_is_removed(const kw_database *db) {
  return kw_file_identify(db->directory, LOCK, db->lock) == KW_FILE_OTHER;
}

const char *kw_database_path(const kw_database *db) {
  return db->path;
}

kw_lmdb_file *kw_database_file(const kw_database *db) {
  return db->file;
}

/* }====== */

int kw_database_write(const kw_database *db, const kw_commit_group *group) {
  return kw_lmdb_write(db->file, mdb_txn_id(db->reading), group, false);
}

int kw_database_apply(const kw_database *db, const kw_commit_group *group) {
  return kw_lmdb_write(db->file, mdb_txn_id(db->reading), group, true);
}

size_t kw_database_leaves(const kw_database *db) {
  return kw_lmdb_leaves(db->file, db->reading);
}

size_t kw_database_need(const kw_database *db, size_t leaves, const kw_commit_group *group) {
  return kw_lmdb_need(db->file, leaves, group);
}

int kw_database_reserve(const kw_database *db, const kw_commit_group *group, size_t need) {
  return kw_lmdb_error(kw_lmdb_reserve(db->file, group, need));
}

/* {====== Reading ====== */

int kw_database_renew(kw_database *db) {
  db->is_before_next = false;
  mdb_txn_reset(db->reading);
  int rc = mdb_txn_renew(db->reading);
  if (rc == 0) rc = look_around(db);
  return rc == 0 ? KW_OK : kw_error_storage(rc);
}

size_t kw_database_records(const kw_database *db) {
  MDB_stat stat;
  int rc = mdb_stat(db->reading, db->file->tables[KW_LMDB_RECORDS], &stat);
  return rc == 0 ? stat.ms_entries : 0;
}

int kw_database_read(const kw_database *db, kw_revision rev, bool tombstone, kw_slice *record) {
  uint8_t bytes[KW_LMDB_RECORD_KEY];
  kw_lmdb_record_key(bytes, rev.main, rev.sub, tombstone);
  return kw_lmdb_find(db->trees, KW_LMDB_RECORDS, kw_slice_of(bytes, sizeof bytes), record);
}

/* A call that continues where the previous one ended needs no search. */
int kw_database_next(kw_database *db, kw_revision rev, kw_database_entry *entry) {
  uint8_t bytes[KW_LMDB_RECORD_KEY];
  kw_slice value;
  bool continues = db->is_before_next && kw_revision_compare(db->next, rev) == 0;
  kw_lmdb_record_key(bytes, rev.main, rev.sub, false);
  int rc = continues ? kw_lmdb_cursor_next(&db->cursor, &value)
                     : kw_lmdb_cursor_seek(&db->cursor, &db->trees[KW_LMDB_RECORDS],
                                           kw_slice_of(bytes, sizeof bytes), &value);
  if (rc > 0) rc = kw_lmdb_entry(db->cursor.key, value, entry);
  db->is_before_next = rc > 0;
  if (rc > 0) db->next = (kw_revision){.main = entry->rev.main, .sub = entry->rev.sub + 1};
  return rc;
}

/* Stores the failure of a walk. */
static bool has_found(kw_database *db, int rc) {
  if (rc < 0) db->walk_failure = rc;
  return rc > 0;
}

int kw_database_walk_failure(const kw_database *db) {
  return db->walk_failure;
}

bool kw_database_next_lease(kw_database *db, const int64_t *after, int64_t *id, int64_t *ttl) {
  uint8_t bytes[8];
  kw_slice key = {0}, value;
  if (after != NULL) key = kw_slice_of(kw_lmdb_lease_key(bytes, *after).mv_data, 8);
  int rc = kw_lmdb_next_entry(db->trees, KW_LMDB_LEASES, &key, &value);
  if (rc > 0) rc = kw_lmdb_lease(key, value, id, ttl);
  return has_found(db, rc);
}

bool kw_database_next_row(kw_database *db, kw_slice *name, kw_slice *bytes) {
  return has_found(db, kw_lmdb_next_entry(db->trees, KW_LMDB_ROWS, name, bytes));
}

int64_t kw_database_in_use(const kw_database *db) {
  return db->in_use;
}

int64_t kw_database_size(const kw_database *db) {
  struct stat st;
  return fstat(db->file->fd, &st) == 0 ? (int64_t)st.st_size : db->size;
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
  if (!kw_database_is_in_place(db)) return KW_ERR_STORAGE;
  int rc = kw_lmdb_check(db->file->fd, db->file->map, db->file->map_bytes);
  if (rc != 0) return rc == ENOMEM ? KW_ERR_NO_MEMORY : KW_ERR_CORRUPT;
  return kw_lmdb_error(copy_to(db, kw_directory_name(db->path, COPY, name)));
}

static void take_file(kw_database *db, const kw_database *from) {
  end_reading(db);
  db->replaced = db->file;
  db->file = from->file;
  db->reading = from->reading;
  memcpy(db->trees, from->trees, sizeof db->trees);
  db->size = from->size;
  db->in_use = from->in_use;
  db->is_before_next = false;
}

void kw_database_close_replaced(kw_database *db) {
  if (db->replaced != NULL) kw_lmdb_file_release(db->replaced);
  db->replaced = NULL;
}

int kw_database_swap(kw_database *db, bool *is_swapped) {
  kw_database new = {.map_bytes = db->map_bytes};
  int directory;
  *is_swapped = false;
  if (!kw_database_is_in_place(db)) return KW_ERR_STORAGE;
  strcpy(new.path, db->path);
  int rc = kw_directory_open(db->path, &directory);
  if (rc == 0) rc = open_file(&new, COPY, LOCK_OF_COPY, false);
  if (rc == 0) rc = kw_lmdb_file_rename(db->path, COPY, DATA);
  *is_swapped = rc == 0;
  if (rc == 0) {
    take_file(db, &new);
    kw_lmdb_file_rename(db->path, LOCK_OF_COPY, LOCK_OF_DATA);
    rc = kw_directory_sync_open(directory);
  } else {
    close_file(&new);
    unlink_in(db, COPY);
    unlink_in(db, LOCK_OF_COPY);
  }
  if (directory >= 0) close(directory);
  return kw_lmdb_error(rc);
}

/* }====== */
