/* SPDX-License-Identifier: MIT */
#include "store/disk.h"

#include "base/mem.h"
#include "base/thread.h"
#include "model/error.h"

typedef struct group {
  kw_disk_change *changes;
  size_t n;
  size_t cap;
  size_t n_rows; /* changes of rows */
  kw_disk_meta meta;
  bool defragment;
} group;

typedef enum work { IDLE, SUBMITTED, DONE } work;

struct kw_disk {
  kw_database *database;
  int defragmented; /* what the last one has come to */

  group gathering;
  group writing; /* the thread's, while it works */

  pthread_t thread;
  bool has_thread;
  pthread_mutex_t mutex; /* for what follows */
  pthread_cond_t changed;
  work work;
  int rc;
  int copied; /* the same of the copy, if the group was to be followed by one */
  bool must_end;
  kw_bell bell;
#ifdef KW_PROBE
  bool is_held;
  int next_failure;
#endif
};

/* {====== The thread ====== */

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

static int write_group(const kw_disk *disk) {
  const group *g = &disk->writing;
  return kw_database_write(disk->database, g->changes, g->n, &g->meta);
}

static void *run(void *ctx) {
  kw_disk *disk = ctx;
  pthread_mutex_lock(&disk->mutex);
  while (true) {
    while ((disk->work != SUBMITTED || is_held(disk)) && !disk->must_end)
      pthread_cond_wait(&disk->changed, &disk->mutex);
    if (disk->work != SUBMITTED) break;
    pthread_mutex_unlock(&disk->mutex);
    int rc = take_failure(disk);
    if (rc == KW_OK) rc = write_group(disk);
    int copied = rc == KW_OK && disk->writing.defragment ? kw_database_copy(disk->database) : KW_OK;
    pthread_mutex_lock(&disk->mutex);
    disk->rc = rc;
    disk->copied = copied;
    disk->work = DONE;
    pthread_cond_broadcast(&disk->changed);
    kw_bell_ring(&disk->bell);
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

/* A group holds on to what is kept until it was taken. */
static void release_rows(group *g) {
  for (size_t i = 0; i < g->n && g->n_rows > 0; i++) {
    const kw_disk_change *c = &g->changes[i];
    if (c->kind != KW_DISK_PUT_ROW && c->kind != KW_DISK_REMOVE_ROW) continue;
    kw_blob_release(c->name);
    if (c->row != NULL) kw_blob_release(c->row);
    g->n_rows--;
  }
}

int kw_disk_open(const char *path, size_t map_bytes, kw_disk **result, char text[KW_DISK_TEXT]) {
  kw_disk *disk = kw_alloc_zeroed(sizeof *disk);
  if (disk == NULL) return KW_ERR_NO_MEMORY;
  int rc = kw_database_open(path, map_bytes, &disk->database, text);
  if (rc != KW_OK) {
    kw_free(disk);
    return rc;
  }
  pthread_mutex_init(&disk->mutex, NULL);
  pthread_cond_init(&disk->changed, NULL);
  if (!start_thread(disk)) {
    kw_disk_close(disk);
    return kw_database_refuse(text, path, "no thread can be started");
  }
  *result = disk;
  return KW_OK;
}

bool kw_disk_is_inherited(const kw_disk *disk) {
  return kw_database_is_inherited(disk->database);
}

/* A process inherits no thread, and what belongs to it is its parent's. */
static void end(kw_disk *disk) {
  if (kw_disk_is_inherited(disk)) return;
  end_thread(disk);
  kw_disk_set_bell(disk, (kw_bell){0});
  pthread_cond_destroy(&disk->changed);
  pthread_mutex_destroy(&disk->mutex);
}

void kw_disk_close(kw_disk *disk) {
  end(disk);
  kw_database_close(disk->database);
  release_rows(&disk->gathering);
  release_rows(&disk->writing);
  kw_free(disk->gathering.changes);
  kw_free(disk->writing.changes);
  kw_free(disk);
}

void kw_disk_set_bell(kw_disk *disk, kw_bell bell) {
  pthread_mutex_lock(&disk->mutex);
  kw_bell before = disk->bell;
  disk->bell = bell;
  pthread_mutex_unlock(&disk->mutex);
  kw_bell_release(&before);
}

/* }====== */

/* {====== Writing ====== */

static bool add(kw_disk *disk, kw_disk_change c) {
  group *g = &disk->gathering;
  if (!kw_reserve(&g->changes, &g->cap, g->n + 1, sizeof *g->changes)) return false;
  g->changes[g->n++] = c;
  return true;
}

bool kw_disk_put(kw_disk *disk, kw_revision rev, bool tombstone, const kw_blob *record) {
  return add(disk, (kw_disk_change){.kind = KW_DISK_PUT,
                                    .main = rev.main,
                                    .sub = rev.sub,
                                    .tombstone = tombstone,
                                    .record = record});
}

bool kw_disk_remove(kw_disk *disk, kw_revision rev, bool tombstone) {
  return add(disk,
             (kw_disk_change){
                 .kind = KW_DISK_REMOVE, .main = rev.main, .sub = rev.sub, .tombstone = tombstone});
}

bool kw_disk_put_lease(kw_disk *disk, int64_t id, int64_t ttl) {
  return add(disk, (kw_disk_change){.kind = KW_DISK_PUT_LEASE, .main = id, .ttl = ttl});
}

bool kw_disk_remove_lease(kw_disk *disk, int64_t id) {
  return add(disk, (kw_disk_change){.kind = KW_DISK_REMOVE_LEASE, .main = id});
}

static bool add_row(kw_disk *disk, kw_disk_change c) {
  if (!add(disk, c)) return false;
  kw_blob_retain(c.name);
  if (c.row != NULL) kw_blob_retain(c.row);
  disk->gathering.n_rows++;
  return true;
}

bool kw_disk_put_row(kw_disk *disk, kw_blob *name, kw_blob *bytes) {
  return add_row(disk, (kw_disk_change){.kind = KW_DISK_PUT_ROW, .name = name, .row = bytes});
}

bool kw_disk_remove_row(kw_disk *disk, kw_blob *name) {
  return add_row(disk, (kw_disk_change){.kind = KW_DISK_REMOVE_ROW, .name = name});
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
    if (from->changes[i].kind == KW_DISK_REMOVE) to->changes[n++] = from->changes[i];
  }
  to->n = n;
}

int kw_disk_forget(kw_disk *disk) {
  group kept = disk->writing, newer = disk->gathering;
  release_rows(&kept);
  release_rows(&newer);
  keep_removals(&kept, &kept);
  keep_removals(&newer, &newer);
  bool ok = kw_reserve(&kept.changes, &kept.cap, kept.n + newer.n, sizeof *kept.changes);
  if (ok) keep_removals(&kept, &newer);
  newer.n = 0;
  disk->gathering = kept;
  disk->writing = newer; /* its memory is used again */
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
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

/* The reader moves on; if the group has left a copy, to that. A swap that might not last is the end of writing. */
static int move_on(kw_disk *disk) {
  bool is_swapped = false;
  if (disk->writing.defragment) {
    disk->defragmented =
        disk->copied == KW_OK ? kw_database_swap(disk->database, &is_swapped) : disk->copied;
  }
  if (is_swapped) return disk->defragmented == KW_OK ? KW_OK : KW_ERR_STORAGE;
  return kw_database_renew(disk->database);
}

int kw_disk_defragmented(const kw_disk *disk) {
  return disk->defragmented;
}

bool kw_disk_take(kw_disk *disk, bool wait, kw_disk_meta *meta, int *rc) {
  pthread_mutex_lock(&disk->mutex);
  while (wait && disk->work == SUBMITTED) pthread_cond_wait(&disk->changed, &disk->mutex);
  bool is_done = disk->work == DONE;
  if (is_done) disk->work = IDLE;
  pthread_mutex_unlock(&disk->mutex);
  if (!is_done) return false;
  release_rows(&disk->writing);
  *meta = disk->writing.meta;
  *rc = disk->rc;
  if (disk->rc == KW_OK) *rc = move_on(disk);
  if (disk->rc == KW_ERR_NO_SPACE && kw_database_renew(disk->database) != KW_OK)
    *rc = KW_ERR_STORAGE; /* some removals may have happened, whose pages are wanted */
  return true;
}

/* }====== */

/* {====== Reading ====== */

kw_disk_meta kw_disk_get_meta(const kw_disk *disk) {
  return kw_database_get_meta(disk->database);
}

size_t kw_disk_records(const kw_disk *disk) {
  return kw_database_records(disk->database);
}

const char *kw_disk_path(const kw_disk *disk) {
  return kw_database_path(disk->database);
}

int kw_disk_read(const kw_disk *disk, kw_revision rev, bool tombstone, kw_slice *record) {
  return kw_database_read(disk->database, rev, tombstone, record);
}

int kw_disk_next(kw_disk *disk, kw_revision rev, kw_disk_entry *entry) {
  return kw_database_next(disk->database, rev, entry);
}

bool kw_disk_next_lease(kw_disk *disk, const int64_t *after, int64_t *id, int64_t *ttl) {
  return kw_database_next_lease(disk->database, after, id, ttl);
}

bool kw_disk_next_row(kw_disk *disk, kw_slice *name, kw_slice *bytes) {
  return kw_database_next_row(disk->database, name, bytes);
}

bool kw_disk_is_damaged(const kw_disk *disk) {
  return kw_database_is_damaged(disk->database);
}

int64_t kw_disk_get_size(const kw_disk *disk, int64_t *in_use) {
  return kw_database_get_size(disk->database, in_use);
}

int kw_disk_open_view(kw_disk *disk, kw_view **view) {
  return kw_view_open(disk->database, view);
}

/* }====== */
