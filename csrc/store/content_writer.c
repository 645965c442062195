/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "store/content_writer.h"

#include "base/big_endian.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "store/read.h"
#include "store/state.h"

#define BUFFER_BYTES (64 * 1024)
#define RELEASED_AT_ONCE 10000 /* records */
#define SUFFIX_ROOM 48         /* bytes of the end of a temporary name */
#define TRIES 100              /* how many names are tried: files of earlier processes may exist */

struct kw_content_writer {
  pid_t pid; /* the process that began the write */
  pthread_t thread;
  bool has_thread;
  atomic_bool must_end;
  atomic_bool is_ended; /* set by the thread */
  int number;           /* outcome of the write, see kw_content_writer_outcome; set by the thread */

  bool is_holding;
  const kw_store *replica; /* the replica whose records are held; only compared */
  uint8_t *key;            /* the last key that was visited */
  size_t key_len;
  size_t key_cap;

  kw_blob **records;
  size_t n;
  size_t cap;
  uint64_t size; /* of the file */
  kw_content_meta meta;
  kw_slice range_bytes; /* key and end, one after the other; owned */
  kw_range range;

  /* The fields below belong to the thread. */
  int fd;
  bool is_named; /* the temporary file has the name `temporary` */
  uint32_t crc;
  int64_t at; /* bytes of the file that were written */
  size_t buffered;
  uint8_t buffer[BUFFER_BYTES];

  char *temporary; /* room for the path with a suffix */
  size_t path_len;
  char path[];
};

/* {====== Bytes of the file ====== */

static int flush(kw_content_writer *w) {
  if (w->must_end) return ECANCELED;
  int number = kw_file_write(w->fd, w->buffer, w->buffered, w->at);
  w->at += (int64_t)w->buffered;
  w->buffered = 0;
  return number;
}

static int put_plain(kw_content_writer *w, kw_slice bytes) {
  while (bytes.len > 0) {
    size_t n = kw_min_size(bytes.len, BUFFER_BYTES - w->buffered);
    memcpy(w->buffer + w->buffered, bytes.data, n);
    w->buffered += n;
    bytes = kw_slice_of(bytes.data + n, bytes.len - n);
    int number = w->buffered == BUFFER_BYTES ? flush(w) : 0;
    if (number != 0) return number;
  }
  return 0;
}

static int put(kw_content_writer *w, kw_slice bytes) {
  w->crc = kw_crc32c(w->crc, bytes);
  return put_plain(w, bytes);
}

static int put_number(kw_content_writer *w, uint32_t v,
                      int (*put_bytes)(kw_content_writer *w, kw_slice bytes)) {
  uint8_t bytes[4];
  kw_big_endian_put32(bytes, v);
  return put_bytes(w, kw_slice_of(bytes, sizeof bytes));
}

static int put_all(kw_content_writer *w) {
  uint8_t header[KW_CONTENT_HEADER];
  kw_content_put_header(header, &w->meta, &w->range, w->size, w->n);
  int number = put(w, kw_slice_of(header, sizeof header));
  if (number == 0) number = put(w, w->range_bytes);
  for (size_t i = 0; number == 0 && i < w->n; i++) {
    number = put_number(w, w->records[i]->len, put);
    if (number == 0) number = put(w, kw_blob_slice(w->records[i]));
  }
  if (number == 0) number = put_number(w, w->crc, put_plain);
  return number == 0 ? flush(w) : number;
}

/* }====== */

/* {====== The temporary file ====== */

/* Writes a name that no other running writer has to w->temporary. */
static void choose_name(kw_content_writer *w) {
  static atomic_uint last;
  snprintf(w->temporary, w->path_len + SUFFIX_ROOM, "%s.%ld.%u.tmp", w->path, (long)w->pid,
           atomic_fetch_add(&last, 1u));
}

static int open_named(kw_content_writer *w) {
  for (int i = 0; i < TRIES; i++) {
    choose_name(w);
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    w->is_named = w->fd >= 0;
    if (w->is_named) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

/* Opens a file without a name in the directory of the path. */
static void open_unnamed(kw_content_writer *w) {
  const char *slash = strrchr(w->path, '/');
  size_t len = slash == NULL ? 0 : (size_t)(slash - w->path) + 1;
  memcpy(w->temporary, w->path, len);
  memcpy(w->temporary + len, ".", 2);
  w->fd = open(w->temporary, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
}

static int give_name(kw_content_writer *w) {
  char from[32];
  snprintf(from, sizeof from, "/proc/self/fd/%d", w->fd);
  for (int i = 0; i < TRIES; i++) {
    choose_name(w);
    w->is_named = linkat(AT_FDCWD, from, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) == 0;
    if (w->is_named) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

static int write_temporary(kw_content_writer *w) {
  w->crc = 0;
  w->at = 0;
  w->buffered = 0;
  int number = put_all(w);
  if (number == 0 && fdatasync(w->fd) < 0) number = errno;
  return number;
}

static int finish(kw_content_writer *w) {
  int number = write_temporary(w);
  if (number == 0 && !w->is_named) {
    number = give_name(w);
    if (number == ENOENT || number == EPERM || number == EXDEV) { /* without /proc */
      int unnamed = w->fd;
      w->fd = -1;
      close(unnamed);
      number = open_named(w);
      if (number == 0) number = write_temporary(w);
    }
  }
  if (number == 0 && rename(w->temporary, w->path) < 0) number = errno;
  if (number != 0 && w->is_named) unlink(w->temporary);
  return number;
}

static int write_file(kw_content_writer *w) {
  w->is_named = false;
  open_unnamed(w);
  int number = w->fd >= 0 ? 0 : open_named(w);
  if (number != 0) return number;
  number = finish(w);
  int fd = w->fd;
  w->fd = -1; /* first: a child that is forked now must not close another file of this number */
  if (fd >= 0) close(fd);
  return number;
}

static void *run(void *ctx) {
  kw_content_writer *w = ctx;
  w->number = write_file(w);
  w->is_ended = true;
  return NULL;
}

/* }====== */

/* {====== Beginning and ending ====== */

kw_content_writer *kw_content_writer_new(const char *path) {
  size_t len = strlen(path);
  kw_content_writer *w = kw_alloc_zeroed(sizeof *w + 2 * (len + 1) + SUFFIX_ROOM);
  if (w == NULL) return NULL;
  memcpy(w->path, path, len + 1);
  w->path_len = len;
  w->temporary = w->path + len + 1;
  w->fd = -1;
  return w;
}

static void release(kw_content_writer *w, size_t most) {
  while (w->n > 0 && most-- > 0) kw_blob_release(w->records[--w->n]);
  if (w->n > 0) return;
  kw_free(w->records);
  kw_free((void *)w->range_bytes.data);
  kw_free(w->key);
  w->key = NULL;
  w->key_len = w->key_cap = 0;
  w->is_holding = false;
  w->records = NULL;
  w->cap = 0;
  w->range_bytes = (kw_slice){0};
}

int kw_content_writer_begin(kw_content_writer *w, const kw_store *replica, const kw_range *range,
                            kw_content_meta meta) {
  size_t len = range->key.len + range->end.len;
  if (len > UINT32_MAX) return KW_ERR_REQUEST_TOO_LARGE;
  uint8_t *copy = kw_alloc(len + 1);
  if (copy == NULL) return KW_ERR_NO_MEMORY;
  w->range = kw_range_copy(range, copy);
  w->range_bytes = kw_slice_of(copy, len);
  w->size = KW_CONTENT_HEADER + len + KW_CONTENT_CHECKSUM;
  w->meta = meta;
  w->meta.revision = replica->revision;
  w->replica = replica;
  w->number = ECANCELED;
  w->is_holding = true;
  return KW_OK;
}

/* Retains the records of some revisions. */
static int retain(kw_content_writer *w, const kw_store *replica, const kw_revision *revs,
                  size_t n) {
  const kw_blob *records[KW_LOG_BATCH];
  if (!kw_reserve(&w->records, &w->cap, w->n + n, sizeof *w->records)) return KW_ERR_NO_MEMORY;
  kw_log_read_batch(replica->log, revs, n, records);
  for (size_t i = 0; i < n; i++) {
    w->records[w->n++] = kw_blob_retain((kw_blob *)records[i]);
    w->size += KW_CONTENT_LENGTH + records[i]->len;
  }
  return w->size > (uint64_t)KW_CONTENT_MAX_BYTES ? KW_ERR_REQUEST_TOO_LARGE : KW_OK;
}

/* Stores the last key that was written: the next call continues at the first larger key. */
static int note_key(kw_content_writer *w, kw_slice key) {
  if (!kw_reserve(&w->key, &w->key_cap, key.len + 1, 1)) return KW_ERR_NO_MEMORY;
  memcpy(w->key, key.data, key.len);
  w->key[key.len] = 0;
  w->key_len = key.len + 1;
  return KW_OK;
}

/* Visits at most this many keys. Returns a positive number if there are no more keys, 0 if there are more, or an
 * error. */
static int visit(kw_content_writer *w, const kw_store *replica, size_t most) {
  kw_slice from = w->key_len == 0 ? kw_slice_text("") : kw_slice_of(w->key, w->key_len);
  kw_index_cursor cursor = kw_index_seek(&replica->index, from);
  const kw_key_history *history = NULL, *last = NULL;
  kw_revision revs[KW_LOG_BATCH];
  size_t n = 0;
  int rc = KW_OK;
  while (rc == KW_OK && most-- > 0 && (history = kw_index_next(&cursor)) != NULL) {
    const kw_change *change = kw_key_history_at(history, w->meta.revision);
    last = history;
    if (change == NULL || change->tombstone) continue;
    revs[n++] = kw_change_revision(change);
    if (n < KW_LOG_BATCH) continue;
    rc = retain(w, replica, revs, n);
    n = 0;
  }
  if (rc == KW_OK && n > 0) rc = retain(w, replica, revs, n);
  if (rc == KW_OK && last != NULL) rc = note_key(w, kw_key_history_key(last));
  return rc != KW_OK ? rc : history == NULL;
}

static int start(kw_content_writer *w) {
  w->pid = kw_process_id();
  w->must_end = w->is_ended = false;
  w->is_holding = false;
  w->has_thread = kw_thread_start(&w->thread, run, w);
  return w->has_thread ? 1 : KW_ERR_NO_MEMORY;
}

int kw_content_writer_hold(kw_content_writer *w, kw_store *replica, size_t most) {
  int rc = kw_read_check(replica, w->meta.revision, replica->revision);
  kw_read_want(replica, w->meta.revision);
  if (w->replica != replica) rc = KW_ERR_COMPACTED;
  if (rc == KW_OK) rc = visit(w, replica, most);
  if (rc > 0) rc = start(w);
  if (rc < 0) release(w, SIZE_MAX);
  return rc;
}

bool kw_content_writer_is_holding(const kw_content_writer *w) {
  return w->is_holding;
}

/* After a fork the thread and the temporary file belong to the parent. */
static void leave_to_parent(kw_content_writer *w) {
  if (!w->has_thread || kw_process_is(w->pid)) return;
  w->has_thread = false;
  w->number = ECANCELED;
  if (w->fd >= 0) close(w->fd);
  w->fd = -1;
}

static void join(kw_content_writer *w) {
  leave_to_parent(w);
  if (w->has_thread) pthread_join(w->thread, NULL);
  w->has_thread = false;
}

bool kw_content_writer_is_done(kw_content_writer *w) {
  leave_to_parent(w);
  if (w->is_holding || (w->has_thread && !w->is_ended)) return false;
  join(w);
  release(w, RELEASED_AT_ONCE);
  return w->n == 0;
}

void kw_content_writer_wait(kw_content_writer *w) {
  join(w);
  release(w, SIZE_MAX);
}

int kw_content_writer_outcome(const kw_content_writer *w) {
  return w->number;
}

void kw_content_writer_free(kw_content_writer *w) {
  w->must_end = true;
  kw_content_writer_wait(w);
  kw_free(w);
}

/* }====== */
