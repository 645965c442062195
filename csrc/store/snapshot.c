/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/snapshot.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "codec/keyvalue.h"
#include "store/image.h"
#include "store/state.h"
#include "store/view.h"

#define PATH_ROOM 4096
#define LEFT_FREE (16 << 20)  /* bytes of the file system that are left to the store */
#define CHECK_EVERY (1 << 20) /* bytes of records between two looks at the free space */

typedef struct held_lease {
  int64_t id;
  int64_t ttl;
} held_lease;

typedef struct held_record {
  kw_revision rev;
  bool tombstone;
  kw_blob *blob;
} held_record;

struct kw_snapshot {
  kw_link link;    /* among the snapshots of the store */
  kw_store *store; /* NULL: freed before the snapshot */
  int fd;
  kw_view *view;        /* of a durable store, else NULL */
  held_record *records; /* of a store in memory, and its leases */
  size_t n_records;
  size_t cap_records;
  held_lease *leases;
  size_t n_leases;
  size_t cap_leases;
  kw_rows rows;

  kw_image_source source;
  size_t next_record; /* these three belong to the thread */
  size_t next_lease;
  size_t unchecked; /* bytes of records since the last look at the free space */

  pid_t pid; /* the process that opened the snapshot */
  pthread_t thread;
  bool has_thread;
  bool is_asked_for;
  pthread_mutex_t mutex; /* guards the fields below */
  bool must_end;
  bool is_done;
  kw_bell bell;
  int rc;
  int64_t size;
};

/* {====== The thread ====== */

static bool must_end(void *ctx) {
  kw_snapshot *s = ctx;
  pthread_mutex_lock(&s->mutex);
  bool end = s->must_end;
  pthread_mutex_unlock(&s->mutex);
  return end;
}

static bool is_full(int fd) {
  struct statvfs fs;
  return fstatvfs(fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < LEFT_FREE;
}

static int check_room(kw_snapshot *s, size_t bytes) {
  s->unchecked += bytes;
  if (s->unchecked < CHECK_EVERY) return 1;
  s->unchecked = 0;
  return is_full(s->fd) ? KW_ERR_NO_SPACE : 1;
}

static int next_of_view(void *ctx, kw_database_entry *entry) {
  kw_snapshot *s = ctx;
  int rc = kw_view_next(s->view, entry);
  if (rc > 0 && !kw_keyvalue_has_key(entry->record)) return KW_ERR_CORRUPT;
  return rc > 0 ? check_room(s, entry->record.len) : rc;
}

static int next_lease_of_view(void *ctx, int64_t *id, int64_t *ttl) {
  return kw_view_next_lease(((kw_snapshot *)ctx)->view, id, ttl);
}

static int next_held(void *ctx, kw_database_entry *entry) {
  kw_snapshot *s = ctx;
  if (s->next_record == s->n_records) return 0;
  const held_record *held = &s->records[s->next_record++];
  *entry = (kw_database_entry){held->rev, held->tombstone, kw_blob_slice(held->blob)};
  return check_room(s, entry->record.len);
}

static int next_held_lease(void *ctx, int64_t *id, int64_t *ttl) {
  kw_snapshot *s = ctx;
  if (s->next_lease == s->n_leases) return 0;
  *id = s->leases[s->next_lease].id;
  *ttl = s->leases[s->next_lease++].ttl;
  return 1;
}

/* Closes the view before the snapshot is ready: the disk can use its pages again, however slowly the file is read. */
static void *run(void *ctx) {
  kw_snapshot *s = ctx;
  int64_t size = 0;
  int rc = is_full(s->fd) ? KW_ERR_NO_SPACE : kw_image_write(s->fd, &s->source, &size);
  if (s->view != NULL) kw_view_close(s->view);
  s->view = NULL;
  if (rc != KW_OK && ftruncate(s->fd, 0) < 0) rc = KW_ERR_STORAGE;
  pthread_mutex_lock(&s->mutex);
  s->rc = rc;
  s->size = size;
  s->is_done = true;
  kw_bell_ring(&s->bell);
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

static bool is_done(const kw_snapshot *s) {
  pthread_mutex_t *mutex = (pthread_mutex_t *)&s->mutex;
  pthread_mutex_lock(mutex);
  bool done = s->is_done;
  pthread_mutex_unlock(mutex);
  return done;
}

/* }====== */

/* {====== Beginning ====== */

static int open_named(const char *directory) {
  char path[PATH_ROOM];
  if ((size_t)snprintf(path, sizeof path, "%s/snapshot.XXXXXX", directory) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  return fd;
}

static const char *directory_of(const kw_store *store) {
  if (store->database != NULL) return kw_database_path(store->database);
  const char *directory = getenv("TMPDIR");
  return directory == NULL || directory[0] == 0 ? "/tmp" : directory;
}

/* Some file systems have no unnamed files (O_TMPFILE): there a named file is made and unlinked. */
static int open_file(kw_snapshot *s) {
  const char *directory = directory_of(s->store);
  s->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (s->fd < 0) s->fd = open_named(directory);
  if (s->fd >= 0) return KW_OK;
  return kw_error_of_errno(errno);
}

static int hold_records(kw_snapshot *s) {
  kw_log_cursor cursor = kw_store_seek(s->store, 0);
  kw_log_entry entry;
  size_t n = kw_log_count(s->store->log);
  if (!kw_reserve(&s->records, &s->cap_records, n, sizeof *s->records)) return KW_ERR_NO_MEMORY;
  while (s->n_records < n && kw_store_next(s->store, &cursor, &entry)) {
    s->records[s->n_records++] =
        (held_record){entry.rev, entry.tombstone, kw_blob_retain(entry.blob)};
  }
  return KW_OK;
}

static int by_id(const void *a, const void *b) {
  uint64_t x = (uint64_t)((const held_lease *)a)->id, y = (uint64_t)((const held_lease *)b)->id;
  return (x > y) - (x < y);
}

static int hold_leases(kw_snapshot *s) {
  const kw_map *all = &s->store->leases.by_id;
  const kw_lease *lease;
  size_t at = 0;
  if (!kw_reserve(&s->leases, &s->cap_leases, all->n, sizeof *s->leases)) return KW_ERR_NO_MEMORY;
  while ((lease = kw_map_next(all, &at)) != NULL)
    s->leases[s->n_leases++] = (held_lease){lease->id, lease->ttl};
  if (s->n_leases > 0) qsort(s->leases, s->n_leases, sizeof *s->leases, by_id);
  return KW_OK;
}

static int hold(kw_snapshot *s) {
  s->source = (kw_image_source){.next_record = next_held,
                                .next_lease = next_held_lease,
                                .meta = {.revision = s->store->revision,
                                         .compact_revision = s->store->compact_revision,
                                         .compacted_until = s->store->compact_next.main}};
  int rc = hold_records(s);
  return rc == KW_OK ? hold_leases(s) : rc;
}

static int open_view(kw_snapshot *s) {
  int rc = kw_view_open(s->store->database, &s->view);
  if (rc != KW_OK) return rc;
  s->source = (kw_image_source){
      .next_record = next_of_view, .next_lease = next_lease_of_view, .meta = kw_view_meta(s->view)};
  return KW_OK;
}

static int begin(kw_snapshot *s) {
  int rc = open_file(s);
  if (rc == KW_OK) rc = s->store->database != NULL ? open_view(s) : hold(s);
  if (rc == KW_OK && !kw_rows_copy(&s->store->rows, &s->rows)) rc = KW_ERR_NO_MEMORY;
  if (rc != KW_OK) return rc;
  s->source.must_end = must_end;
  s->source.rows = &s->rows;
  s->source.ctx = s;
  s->has_thread = kw_thread_start(&s->thread, run, s);
  return s->has_thread ? KW_OK : KW_ERR_NO_MEMORY;
}

static size_t count(const kw_store *store) {
  size_t n = 0;
  for (const kw_link *link = store->snapshots.next; link != &store->snapshots; link = link->next)
    n++;
  return n;
}

int kw_snapshot_open(kw_store *store, kw_snapshot **result) {
  if (count(store) >= KW_MAX_SNAPSHOTS) return KW_ERR_TOO_MANY_SNAPSHOTS;
  kw_snapshot *s = kw_alloc_zeroed(sizeof *s);
  if (s == NULL) return KW_ERR_NO_MEMORY;
  pthread_mutex_init(&s->mutex, NULL);
  s->fd = -1;
  s->pid = kw_process_id();
  s->store = store;
  s->bell = kw_bell_retain(&store->bell);
  kw_link_init(&s->link);
  kw_link_add(&store->snapshots, &s->link);
  int rc = begin(s);
  if (rc != KW_OK) {
    kw_snapshot_close(s);
    return rc;
  }
  *result = s;
  return KW_OK;
}

/* }====== */

/* {====== Ending ====== */

/* Waits for the thread to end, and releases everything that it has read from. */
static void release_source(kw_snapshot *s) {
  if (s->has_thread) pthread_join(s->thread, NULL);
  s->has_thread = false;
  if (s->view != NULL) kw_view_close(s->view);
  s->view = NULL;
  while (s->n_records > 0) kw_blob_release(s->records[--s->n_records].blob);
  kw_rows_drop(&s->rows);
  kw_free(s->records);
  kw_free(s->leases);
  s->records = NULL;
  s->leases = NULL;
}

/* After a fork the child has no thread, and the view belongs to the parent. */
static void stop(kw_snapshot *s) {
  if (s->pid != kw_process_id()) {
    s->has_thread = false;
    s->view = NULL;
    release_source(s);
    return;
  }
  pthread_mutex_lock(&s->mutex);
  s->must_end = true;
  pthread_mutex_unlock(&s->mutex);
  release_source(s);
}

void kw_snapshot_close(kw_snapshot *s) {
  stop(s);
  kw_link_remove(&s->link);
  kw_bell_release(&s->bell);
  if (s->fd >= 0) close(s->fd);
  pthread_mutex_destroy(&s->mutex);
  kw_free(s);
}

void kw_snapshot_end_all(kw_store *store) {
  while (!kw_link_is_alone(&store->snapshots)) {
    kw_snapshot *s = KW_CONTAINER_OF(store->snapshots.next, kw_snapshot, link);
    stop(s);
    s->store = NULL;
    kw_link_remove(&s->link);
  }
}

/* }====== */

bool kw_snapshot_is_ready(kw_snapshot *s) {
  bool done = is_done(s);
  s->is_asked_for = !done;
  if (done) release_source(s);
  return done;
}

bool kw_snapshot_is_awaited(const kw_store *store) {
  for (const kw_link *link = store->snapshots.next; link != &store->snapshots; link = link->next) {
    const kw_snapshot *s = KW_CONTAINER_OF(link, kw_snapshot, link);
    if (s->is_asked_for && is_done(s)) return true;
  }
  return false;
}

int kw_snapshot_outcome(const kw_snapshot *s) {
  return s->rc;
}

int64_t kw_snapshot_size(const kw_snapshot *s) {
  return s->size;
}

int kw_snapshot_read(const kw_snapshot *s, int64_t at, uint8_t *to, size_t n) {
  return kw_file_read(s->fd, to, n, at) ? KW_OK : KW_ERR_STORAGE;
}
