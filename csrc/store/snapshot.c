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
#include "disk/image.h"
#include "disk/view.h"
#include "store/state.h"

#define PATH_ROOM 4096
#define LEFT_FREE (16 << 20)  /* bytes of the file system that a snapshot leaves free */
#define CHECK_EVERY (1 << 20) /* bytes of records between two checks of the free space */

typedef struct held_lease {
  int64_t id;
  int64_t ttl;
} held_lease;

typedef struct held_record {
  kw_revision rev;
  bool tombstone;
  kw_blob *blob;
} held_record;

#define BATCH_RECORDS KW_WORK_TURN
/* Batches that wait or are being read: while the thread reads one, the next is gathered. */
#define BATCHES 2

typedef struct batch {
  struct batch *next;
  size_t n;
  held_record records[BATCH_RECORDS];
} batch;

struct kw_snapshot {
  kw_link link;    /* in the list of the store's snapshots */
  kw_store *store; /* NULL: the store was freed first */
  int fd;
  kw_view *view;     /* of a durable store, else NULL */
  bool is_gathering; /* of a store in memory: leases, then records from `next` up to `revision` */
  kw_revision next;
  int64_t revision;
  bool has_cursor; /* some leases are not copied yet */
  kw_lease_cursor cursor;
  held_lease *leases; /* the thread reads them after the last batch */
  size_t n_leases;
  size_t cap_leases; /* enough for all of them */
  kw_rows rows;      /* of a store in memory */

  kw_image_source source;

  /* The next five fields belong to the thread. */
  batch *reading; /* the batch that the thread reads; NULL before the first and after the last */
  size_t next_record; /* index in that batch */
  bool is_sorted;     /* the leases are sorted */
  size_t next_lease;
  size_t unchecked; /* bytes of records since the last check of the free space */

  pid_t pid; /* the process that opened the snapshot */
  pthread_t thread;
  bool has_thread;
  bool is_awaited;       /* the last kw_snapshot_is_ready has returned false */
  bool is_closed;        /* a step frees the snapshot, after the thread has ended */
  pthread_mutex_t mutex; /* guards the fields below */
  pthread_cond_t changed;
  batch *first; /* list of the batches that wait for the thread */
  batch *last;
  size_t n_batches;    /* waiting batches, and the one that is being read */
  batch *read;         /* batches that have to be released */
  bool is_complete;    /* no batch will follow */
  int gathering_error; /* error of the gathering, or KW_OK */
  bool must_end;
  bool is_done;
  kw_bell bell;
  int rc;
  int number; /* the errno, or error of LMDB, that caused an rc of KW_ERR_ABORTED; 0: unknown */
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

static int next_row_of_view(void *ctx, kw_slice *name, kw_slice *bytes) {
  return kw_view_next_row(((kw_snapshot *)ctx)->view, name, bytes);
}

static int next_lease_of_view(void *ctx, int64_t *id, int64_t *ttl) {
  return kw_view_next_lease(((kw_snapshot *)ctx)->view, id, ttl);
}

/* Returns the batch that was read. Called with the mutex locked. */
static void give_back(kw_snapshot *s) {
  batch *b = s->reading;
  if (b == NULL) return;
  s->reading = NULL;
  b->next = s->read;
  s->read = b;
  s->n_batches--;
  kw_bell_ring(&s->bell);
}

/* Waits for the next batch, and takes it. Returns 1, 0 after the last one, or an error. */
static int take_batch(kw_snapshot *s) {
  pthread_mutex_lock(&s->mutex);
  give_back(s);
  while (s->first == NULL && !s->is_complete && !s->must_end)
    pthread_cond_wait(&s->changed, &s->mutex);
  int rc = s->must_end ? KW_ERR_CANCELLED : s->gathering_error;
  if (rc == KW_OK && (s->reading = s->first) != NULL) {
    s->first = s->reading->next;
    s->reading->next = NULL; /* releasing this batch must not release the others */
  }
  pthread_mutex_unlock(&s->mutex);
  s->next_record = 0;
  return rc != KW_OK ? rc : s->reading != NULL;
}

static int next_held(void *ctx, kw_database_entry *entry) {
  kw_snapshot *s = ctx;
  while (s->reading == NULL || s->next_record == s->reading->n) {
    int rc = take_batch(s);
    if (rc <= 0) return rc;
  }
  const held_record *held = &s->reading->records[s->next_record++];
  *entry = (kw_database_entry){held->rev, held->tombstone, kw_blob_slice(held->blob)};
  return check_room(s, entry->record.len);
}

static int by_id(const void *a, const void *b) {
  return kw_order_unsigned((uint64_t)((const held_lease *)a)->id,
                           (uint64_t)((const held_lease *)b)->id);
}

static int next_held_lease(void *ctx, int64_t *id, int64_t *ttl) {
  kw_snapshot *s = ctx;
  if (!s->is_sorted && s->n_leases > 0) qsort(s->leases, s->n_leases, sizeof *s->leases, by_id);
  s->is_sorted = true;
  if (s->next_lease == s->n_leases) return 0;
  *id = s->leases[s->next_lease].id;
  *ttl = s->leases[s->next_lease++].ttl;
  return 1;
}

static int next_held_row(void *ctx, kw_slice *name, kw_slice *bytes) {
  const kw_rows *rows = &((kw_snapshot *)ctx)->rows;
  size_t at = kw_rows_seek(rows, *name);
  if (at < rows->n && kw_slice_equal(kw_blob_slice(rows->items[at].name), *name)) at++;
  if (at == rows->n) return 0;
  *name = kw_blob_slice(rows->items[at].name);
  *bytes = kw_blob_slice(rows->items[at].bytes);
  return 1;
}

/* Returns the error of a snapshot that cannot be begun: KW_ERR_STORAGE would mean that the storage has failed. */
static int refused(int rc) {
  return rc == KW_ERR_STORAGE ? KW_ERR_ABORTED : rc;
}

/* Closes the view before the snapshot is ready, so that the database can reuse its pages, however slowly the file is
 * read. */
static void *run(void *ctx) {
  kw_snapshot *s = ctx;
  int64_t size = 0;
  int rc = is_full(s->fd) ? KW_ERR_NO_SPACE : KW_OK;
  if (rc == KW_OK) rc = kw_image_write(s->fd, &s->source, &size);
  if (s->view != NULL) kw_view_close(s->view);
  s->view = NULL;
  if (rc != KW_OK && ftruncate(s->fd, 0) < 0) rc = KW_ERR_STORAGE;
  pthread_mutex_lock(&s->mutex);
  s->rc = refused(rc);
  s->number = kw_error_take_number();
  s->size = size;
  s->is_done = true;
  kw_bell_ring(&s->bell);
  pthread_mutex_unlock(&s->mutex);
  return NULL;
}

static void init_mutex(kw_snapshot *s) {
  s->pid = kw_process_id();
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
}

/* Every function begins with this call. In a child process a snapshot that was not ready has failed, see
 * base/process.h; the data that the thread was reading are not touched. */
static kw_snapshot *enter(kw_snapshot *s) {
  if (kw_process_is(s->pid)) return s;
  init_mutex(s); /* the parent's thread may have locked it */
  if (s->is_done && !s->has_thread) return s;
  s->has_thread = s->is_gathering = false;
  s->view = NULL;
  s->reading = s->first = s->read = NULL;
  s->rows = (kw_rows){0};
  s->rc = KW_ERR_CANCELLED;
  s->is_done = true;
  return s;
}

static bool is_done(kw_snapshot *s) {
  pthread_mutex_lock(&s->mutex);
  bool done = s->is_done;
  pthread_mutex_unlock(&s->mutex);
  return done;
}

/* }====== */

/* {====== Ending ====== */

static kw_snapshot *snapshot_at(const kw_link *link) {
  return enter(KW_CONTAINER_OF(link, kw_snapshot, link));
}

static void release_batches(batch *b) {
  for (batch *next; b != NULL; b = next) {
    next = b->next;
    for (size_t i = 0; i < b->n; i++) kw_blob_release(b->records[i].blob);
    kw_free(b);
  }
}

static void drop_cursor(kw_snapshot *s) {
  if (s->has_cursor) kw_lease_cursor_drop(&s->cursor);
  s->has_cursor = false;
}

/* Waits for the thread to end, and releases everything that the thread has read from. */
static void release_source(kw_snapshot *s) {
  if (s->has_thread) pthread_join(s->thread, NULL);
  s->has_thread = false;
  if (s->view != NULL) kw_view_close(s->view);
  s->view = NULL;
  s->is_gathering = false;
  release_batches(s->reading);
  release_batches(s->first);
  release_batches(s->read);
  s->reading = s->first = s->read = NULL;
  drop_cursor(s);
  kw_rows_drop(&s->rows);
  kw_free(s->leases);
  s->leases = NULL;
}

/* Makes the thread stop early. */
static void cancel(kw_snapshot *s) {
  pthread_mutex_lock(&s->mutex);
  s->must_end = true;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void stop(kw_snapshot *s) {
  cancel(s);
  release_source(s);
}

static void free_snapshot(kw_snapshot *s) {
  stop(s);
  kw_link_remove(&s->link);
  kw_bell_release(&s->bell);
  if (s->fd >= 0) kw_file_close_unnamed(s->fd);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
  kw_free(s);
}

void kw_snapshot_close(kw_snapshot *s) {
  enter(s);
  if (s->store == NULL || !s->has_thread || is_done(s)) {
    free_snapshot(s);
    return;
  }
  s->is_closed = true;
  s->is_awaited = s->is_gathering = false;
  drop_cursor(s);
  cancel(s);
}

void kw_snapshot_end_all(kw_store *store) {
  while (!kw_link_is_alone(&store->snapshots)) {
    kw_snapshot *s = snapshot_at(store->snapshots.next);
    stop(s);
    s->store = NULL;
    kw_link_remove(&s->link);
    if (s->is_closed) free_snapshot(s);
  }
}

/* }====== */

/* {====== Gathering ====== */

static void hold_lease(const kw_lease *lease, void *ctx) {
  kw_snapshot *s = ctx;
  assert(s->n_leases < s->cap_leases);
  s->leases[s->n_leases++] = (held_lease){lease->id, lease->ttl};
}

/* Copies leases until the work is used up. Returns false if there are more. */
static bool hold_leases(kw_snapshot *s, kw_work *work) {
  while (s->has_cursor && kw_work_is_left(work)) {
    const kw_lease *lease = kw_lease_cursor_next(&s->cursor, &s->store->leases);
    if (lease == NULL) {
      drop_cursor(s);
    } else {
      hold_lease(lease, s);
      kw_work_spend(work, 0);
    }
  }
  return !s->has_cursor;
}

/* Adds records to a batch until the batch is full or the work is used up. Returns false if there are no more. */
static bool fill(kw_snapshot *s, batch *b, kw_work *work) {
  kw_log_cursor cursor = kw_log_seek(s->store->log, s->next);
  kw_log_entry entry;
  while (b->n < BATCH_RECORDS && kw_work_is_left(work)) {
    if (!kw_log_next(s->store->log, &cursor, &entry) || entry.rev.main > s->revision) return false;
    b->records[b->n++] = (held_record){entry.rev, entry.tombstone, kw_blob_retain(entry.blob)};
    s->next = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
    kw_work_spend(work, entry.bytes.len);
  }
  return true;
}

/* Passes a batch to the thread; NULL: memory was short for the batch. */
static void hand_over(kw_snapshot *s, batch *b) {
  pthread_mutex_lock(&s->mutex);
  s->is_complete = !s->is_gathering;
  if (b == NULL) {
    s->gathering_error = KW_ERR_NO_MEMORY;
  } else {
    *(s->first == NULL ? &s->first : &s->last->next) = b;
    s->last = b;
    s->n_batches++;
  }
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

/* Gathers leases and one batch, within the work of a turn. */
static void gather(kw_snapshot *s) {
  kw_work work = kw_work_of_turn();
  if (!hold_leases(s, &work)) return;
  batch *b = kw_alloc(sizeof *b);
  if (b != NULL) b->next = NULL, b->n = 0;
  s->is_gathering = b != NULL && fill(s, b, &work);
  hand_over(s, b);
}

/* True if the thread can take a batch, or no longer needs one; or if a compaction waits for the last batch. */
static bool has_room(kw_snapshot *s) {
  const kw_store *store = s->store;
  bool is_waited_for = store->compact_next.main <= store->compact_revision;
  pthread_mutex_lock(&s->mutex);
  bool has_room = is_waited_for || s->n_batches < BATCHES || s->is_done;
  pthread_mutex_unlock(&s->mutex);
  return has_room;
}

static void step(kw_snapshot *s) {
  pthread_mutex_lock(&s->mutex);
  batch *read = s->read;
  s->read = NULL;
  pthread_mutex_unlock(&s->mutex);
  release_batches(read);
  if (!s->is_gathering || !has_room(s)) return;
  if (is_done(s)) {
    s->is_gathering = false; /* the file has failed */
  } else {
    gather(s);
  }
}

bool kw_snapshot_is_gathering(const kw_store *store) {
  const kw_link *all = &store->snapshots;
  for (const kw_link *link = all->next; link != all; link = link->next) {
    if (snapshot_at(link)->is_gathering) return true;
  }
  return false;
}

bool kw_snapshot_is_due(const kw_store *store) {
  const kw_link *all = &store->snapshots;
  for (const kw_link *link = all->next; link != all; link = link->next) {
    kw_snapshot *s = snapshot_at(link);
    if (s->is_gathering && has_room(s)) return true;
    if (s->is_closed && is_done(s)) return true;
  }
  return false;
}

void kw_snapshot_step(kw_store *store) {
  const kw_link *all = &store->snapshots;
  for (const kw_link *link = all->next, *next; link != all; link = next) {
    kw_snapshot *s = snapshot_at(link);
    next = link->next;
    if (s->is_closed && is_done(s)) {
      free_snapshot(s);
    } else {
      step(s);
    }
  }
}

void kw_snapshot_gather_all(kw_store *store) {
  const kw_link *all = &store->snapshots;
  for (const kw_link *link = all->next; link != all; link = link->next) {
    kw_snapshot *s = snapshot_at(link);
    while (s->is_gathering) gather(s);
  }
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
  const kw_database *db = store->database;
  if (db != NULL && kw_database_is_in_place(db)) return kw_database_path(db);
  const char *directory = getenv("TMPDIR");
  return directory == NULL || directory[0] == 0 ? "/tmp" : directory;
}

/* On a file system without unnamed files (O_TMPFILE), a named file is made and unlinked. */
static int open_file(kw_snapshot *s) {
  const char *directory = directory_of(s->store);
  s->fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (s->fd < 0) s->fd = open_named(directory);
  if (s->fd >= 0) return KW_OK;
  return kw_error_of_errno(errno);
}

/* Begins to copy the leases, including those that the open write has revoked. */
static int begin_leases(kw_snapshot *s) {
  kw_leases *all = &s->store->leases;
  if (!kw_reserve(&s->leases, &s->cap_leases, all->n_all, sizeof *s->leases))
    return KW_ERR_NO_MEMORY;
  s->cursor.on_end = hold_lease;
  s->cursor.ctx = s;
  kw_lease_cursor_init(&s->cursor, all);
  s->has_cursor = true;
  return KW_OK;
}

static int hold(kw_snapshot *s) {
  s->source = (kw_image_source){.next_record = next_held,
                                .next_lease = next_held_lease,
                                .next_row = next_held_row,
                                .meta = {.revision = s->store->revision,
                                         .compact_revision = s->store->compact_revision,
                                         .compacted_until = s->store->compact_next.main}};
  s->revision = s->store->revision;
  int rc = begin_leases(s);
  if (rc != KW_OK) return rc;
  s->is_gathering = true;
  gather(s);
  if (s->gathering_error != KW_OK) return s->gathering_error;
  return kw_rows_copy(&s->store->rows, &s->rows) ? KW_OK : KW_ERR_NO_MEMORY;
}

static int open_view(kw_snapshot *s) {
  int rc = kw_view_open(s->store->database, &s->view);
  if (rc != KW_OK) return rc;
  s->source = (kw_image_source){.next_record = next_of_view,
                                .next_lease = next_lease_of_view,
                                .next_row = next_row_of_view,
                                .meta = kw_view_meta(s->view)};
  return KW_OK;
}

static int begin(kw_snapshot *s) {
  int rc = open_file(s);
  if (rc == KW_OK) rc = s->store->database != NULL ? open_view(s) : hold(s);
  if (rc != KW_OK) return rc;
  s->source.must_end = must_end;
  s->source.ctx = s;
  if (!s->store->options.has_threads) return KW_OK;
  s->has_thread = kw_thread_start(&s->thread, run, s);
  return s->has_thread ? KW_OK : KW_ERR_NO_MEMORY;
}

/* True if a store may have one more snapshot. In addition, the same number of snapshots may be closed, with threads
 * that have not ended yet. */
static bool may_open(const kw_store *store) {
  size_t n_open = 0, n = 0;
  for (const kw_link *link = store->snapshots.next; link != &store->snapshots; link = link->next) {
    n_open += !snapshot_at(link)->is_closed;
    n++;
  }
  return n_open < KW_MAX_SNAPSHOTS && n < 2 * KW_MAX_SNAPSHOTS;
}

static void describe(int number, char text[KW_REASON_ROOM]) {
  kw_fault fault = {"its file cannot be written or read", number};
  kw_fault_describe("keywatch: there is no snapshot", fault, text);
}

int kw_snapshot_open(kw_store *store, kw_snapshot **result, char text[KW_REASON_ROOM]) {
  if (!may_open(store)) return KW_ERR_TOO_MANY_SNAPSHOTS;
  kw_snapshot *s = kw_alloc_zeroed(sizeof *s);
  if (s == NULL) return KW_ERR_NO_MEMORY;
  init_mutex(s);
  s->fd = -1;
  s->store = store;
  s->bell = kw_bell_retain(&store->bell);
  kw_link_init(&s->link);
  kw_link_add(&store->snapshots, &s->link);
  kw_error_take_number();
  int rc = refused(begin(s));
  if (rc != KW_OK) {
    kw_snapshot_close(s);
    if (rc == KW_ERR_ABORTED) describe(kw_error_take_number(), text);
    return rc;
  }
  *result = s;
  return KW_OK;
}

/* }====== */

bool kw_snapshot_is_ready(kw_snapshot *s) {
  enter(s);
  if (s->store != NULL && !s->store->options.has_threads && !is_done(s)) {
    kw_snapshot_gather_all(s->store);
    run(s);
  }
  bool done = is_done(s);
  s->is_awaited = !done;
  if (done) {
    release_source(s);
  } else {
    step(s);
  }
  return done;
}

bool kw_snapshot_is_awaited(const kw_store *store) {
  for (const kw_link *link = store->snapshots.next; link != &store->snapshots; link = link->next) {
    kw_snapshot *s = snapshot_at(link);
    if (s->is_awaited && is_done(s)) return true;
  }
  return false;
}

int kw_snapshot_outcome(const kw_snapshot *s, char text[KW_REASON_ROOM]) {
  if (s->rc == KW_ERR_ABORTED) describe(s->number, text);
  return s->rc;
}

int64_t kw_snapshot_size(const kw_snapshot *s) {
  return s->size;
}

int kw_snapshot_read(const kw_snapshot *s, int64_t at, uint8_t *to, size_t n,
                     char text[KW_REASON_ROOM]) {
  errno = 0;
  if (kw_file_read(s->fd, to, n, at)) return KW_OK;
  describe(errno, text);
  return KW_ERR_ABORTED;
}
