/* SPDX-License-Identifier: MIT */
#include "store/log.h"

#include "base/mem.h"
#include "codec/keyvalue.h"
#include "model/error.h"

#define CACHE_LINE 64
#define PREFETCH_BYTES 320 /* of a record; few records are larger */
/* A scan prefetches records this far ahead. */
#define AHEAD (KW_LOG_CHUNK / 4 < 8 ? KW_LOG_CHUNK / 4 : 8)
/* The first chunk starts small, for stores that stay small. */
#define FIRST_CAP (KW_LOG_CHUNK / 32 + 1)

typedef kw_commit_record entry; /* its record is NULL in a hole */

typedef struct chunk {
  struct chunk *next; /* in log->dropped */
  size_t bytes;       /* cost of its records */
  uint32_t n;
  uint32_t cap;
  uint32_t holes;
  entry entries[];
} chunk;

/* An entry of the directory. `first` is not above the chunk's first revision, and above all revisions before the
 * chunk. */
typedef struct directory_entry {
  kw_revision first;
  chunk *chunk;
} directory_entry;

struct kw_log {
  directory_entry *directory;
  size_t n;
  size_t cap;
  size_t count;      /* records, including those of the database */
  size_t bytes;      /* cost of these records */
  size_t tail_bytes; /* cost of the records in memory */

  kw_database *database;  /* NULL: the store is in memory */
  kw_commit_group *group; /* the gathering commit group; NULL: the store is in memory */
  int64_t on_disk;        /* records up to this revision are read from the database */
  kw_blob **lent;         /* copies of records of the database, which readers borrow */
  size_t n_lent;
  size_t cap_lent;
  chunk *dropped; /* list of chunks that have left the directory, whose records have to be freed */
  size_t dropped_bytes; /* cost of the records of these chunks */
  int failure;          /* of the last unreadable record since the last release */
};

static kw_revision revision_of(const entry *e) {
  return (kw_revision){.main = e->main, .sub = e->sub};
}

static chunk *resize_chunk(chunk *old, size_t cap) {
  chunk *c = kw_realloc(old, sizeof *c + cap * sizeof c->entries[0]);
  if (c == NULL) return NULL;
  if (old == NULL) *c = (chunk){0};
  c->cap = (uint32_t)cap;
  return c;
}

kw_log *kw_log_new(kw_database *database, kw_commit_group *group) {
  kw_log *log = kw_alloc_zeroed(sizeof *log);
  if (log == NULL) return NULL;
  log->database = database;
  log->group = group;
  if (database != NULL) log->on_disk = kw_database_get_meta(database).revision;
  return log;
}

static void free_chunk(chunk *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    if (c->entries[i].record != NULL) kw_blob_release(c->entries[i].record);
  }
  kw_free(c);
}

void kw_log_free(kw_log *log) {
  kw_log_release(log);
  kw_free(log->lent);
  for (size_t i = 0; i < log->n; i++) free_chunk(log->directory[i].chunk);
  for (chunk *c = log->dropped, *next; c != NULL; c = next) {
    next = c->next;
    free_chunk(c);
  }
  kw_free(log->directory);
  kw_free(log);
}

size_t kw_log_count(const kw_log *log) {
  return log->count;
}

size_t kw_log_bytes(const kw_log *log) {
  return log->bytes;
}

size_t kw_log_pending_bytes(const kw_log *log) {
  return log->database == NULL ? 0 : log->tail_bytes;
}

size_t kw_log_memory(const kw_log *log) {
  return log->tail_bytes + log->dropped_bytes;
}

size_t kw_log_cost(size_t len) {
  return sizeof(entry) + sizeof(kw_blob) + len;
}

/* {====== Lending ====== */

/* Lends an empty record instead of an unreadable one. Decoded, it has an empty key. */
static kw_blob *lend_nothing(kw_log *log, int rc) {
  static union {
    kw_blob blob;
    uint8_t room[sizeof(kw_blob) + 2]; /* the tag of a key, and its length */
  } nothing = {.blob = {.refs = 1}};   /* never freed: this reference is never released */
  log->failure = rc;
  return &nothing.blob;
}

/* Lends a copy of a record of the database. */
static kw_blob *lend(kw_log *log, kw_slice bytes) {
  kw_blob *blob = NULL;
  if (!kw_keyvalue_has_key(bytes)) return lend_nothing(log, KW_ERR_CORRUPT);
  if (kw_reserve(&log->lent, &log->cap_lent, log->n_lent + 1, sizeof *log->lent))
    blob = kw_blob_copy(bytes);
  if (blob == NULL) return lend_nothing(log, KW_ERR_NO_MEMORY);
  return log->lent[log->n_lent++] = blob;
}

static kw_blob *read_disk(kw_log *log, kw_revision rev, bool tombstone) {
  kw_slice record;
  int rc = kw_database_read(log->database, rev, tombstone, &record);
  return rc == KW_OK ? lend(log, record) : lend_nothing(log, rc);
}

void kw_log_release(kw_log *log) {
  while (log->n_lent > 0) kw_blob_release(log->lent[--log->n_lent]);
  log->failure = KW_OK;
}

int kw_log_failure(const kw_log *log) {
  return log->failure;
}

/* }====== */

/* {====== Appending ====== */

/* Returns the last chunk, with space for one more entry, or NULL if memory is short. Commit groups point to the entries
 * of a durable log, so its chunks do not grow. */
static chunk *tail_with_room(kw_log *log, kw_revision rev) {
  directory_entry *tail = log->n == 0 ? NULL : &log->directory[log->n - 1];
  if (tail != NULL && tail->chunk->n < tail->chunk->cap) return tail->chunk;
  if (tail != NULL && tail->chunk->cap < KW_LOG_CHUNK && log->database == NULL) {
    chunk *c = resize_chunk(tail->chunk, kw_min_size(tail->chunk->cap * 2, KW_LOG_CHUNK));
    return c == NULL ? NULL : (tail->chunk = c);
  }
  if (!kw_reserve(&log->directory, &log->cap, log->n + 1, sizeof *log->directory)) return NULL;
  chunk *c = resize_chunk(NULL, log->n == 0 ? FIRST_CAP : KW_LOG_CHUNK);
  if (c == NULL) return NULL;
  log->directory[log->n++] = (directory_entry){.first = rev, .chunk = c};
  return c;
}

int kw_log_append(kw_log *log, kw_revision rev, bool tombstone, kw_blob *record) {
  if (log->database != NULL && !kw_commit_group_reserve(log->group, 1)) return KW_ERR_NO_MEMORY;
  chunk *c = tail_with_room(log, rev);
  if (c == NULL) return KW_ERR_NO_MEMORY;
  if (c->n == 0) log->directory[log->n - 1].first = rev;
  assert(c->n == 0 || kw_revision_compare(revision_of(&c->entries[c->n - 1]), rev) < 0);
  entry *e = &c->entries[c->n++];
  *e = (entry){.main = rev.main, .sub = rev.sub, .tombstone = tombstone, .record = record};
  if (log->database != NULL) kw_commit_group_put_at(log->group, e);
  log->count++;
  c->bytes += kw_log_cost(record->len);
  log->bytes += kw_log_cost(record->len);
  log->tail_bytes += kw_log_cost(record->len);
  return KW_OK;
}

static void release_entry(kw_log *log, chunk *c, entry *e) {
  log->count--;
  c->bytes -= kw_log_cost(e->record->len);
  log->bytes -= kw_log_cost(e->record->len);
  log->tail_bytes -= kw_log_cost(e->record->len);
  kw_blob_release(e->record);
  e->record = NULL;
}

static void remove_chunk(kw_log *log, size_t at) {
  kw_free(log->directory[at].chunk);
  log->n--;
  memmove(&log->directory[at], &log->directory[at + 1], (log->n - at) * sizeof log->directory[0]);
  kw_shrink(&log->directory, &log->cap, log->n, sizeof *log->directory);
}

size_t kw_log_undo(kw_log *log) {
  chunk *c = log->directory[log->n - 1].chunk;
  entry *e = &c->entries[--c->n];
  size_t bytes = e->record->len;
  release_entry(log, c, e);
  if (c->n == 0 && log->n > 1) remove_chunk(log, log->n - 1);
  return bytes;
}

/* }====== */

/* {====== Finding ====== */

/* Returns how many chunks begin at or before rev. rev belongs to the last of them. */
static size_t directory_until(const kw_log *log, kw_revision rev) {
  size_t low = 0, high = log->n;
  if (high > 0 && kw_revision_compare(log->directory[high - 1].first, rev) <= 0)
    return high; /* the usual case */
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_revision_compare(log->directory[mid].first, rev) <= 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

/* Returns the position of the first entry >= rev, or the end of the chunk. */
static uint32_t entry_from(const chunk *c, kw_revision rev) {
  uint32_t low = 0, high = c->n;
  while (low < high) {
    uint32_t mid = low + (high - low) / 2;
    if (kw_revision_compare(revision_of(&c->entries[mid]), rev) < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

static bool is_at(const chunk *c, uint32_t at, kw_revision rev) {
  return at < c->n && c->entries[at].main == rev.main && c->entries[at].sub == rev.sub;
}

/* Guesses the position of a revision in its chunk. The guess is right if every write was a transaction of
 * its own and nothing was compacted. */
static uint64_t guess_of(const directory_entry *in, kw_revision rev) {
  return (uint64_t)(rev.main - in->first.main);
}

/* Returns the entry of a revision in its chunk, or NULL. */
static entry *find_in(const directory_entry *in, kw_revision rev) {
  chunk *c = in->chunk;
  uint64_t at = guess_of(in, rev);
  if (at >= c->n || !is_at(c, (uint32_t)at, rev)) at = entry_from(c, rev);
  return is_at(c, (uint32_t)at, rev) ? &c->entries[at] : NULL;
}

static kw_blob *read_tail(const kw_log *log, kw_revision rev) {
  size_t until = directory_until(log, rev);
  const entry *e = until == 0 ? NULL : find_in(&log->directory[until - 1], rev);
  return e == NULL ? NULL : e->record;
}

static bool is_on_disk(const kw_log *log, int64_t main) {
  return log->database != NULL && main <= log->on_disk;
}

kw_blob *kw_log_read(kw_log *log, kw_revision rev, bool tombstone) {
  return is_on_disk(log, rev.main) ? read_disk(log, rev, tombstone) : read_tail(log, rev);
}

/* Finds the bytes of a record. Returns KW_OK, or the error if they cannot be read. */
static int find_bytes(const kw_log *log, kw_revision rev, bool tombstone, kw_slice *bytes) {
  *bytes = (kw_slice){0};
  if (is_on_disk(log, rev.main)) {
    int rc = kw_database_read(log->database, rev, tombstone, bytes);
    if (rc != KW_OK) return rc;
  } else {
    const kw_blob *record = read_tail(log, rev);
    if (record != NULL) *bytes = kw_blob_slice(record);
  }
  return kw_keyvalue_has_key(*bytes) ? KW_OK : KW_ERR_CORRUPT;
}

kw_slice kw_log_look(kw_log *log, kw_revision rev, bool tombstone) {
  kw_slice bytes;
  int rc = find_bytes(log, rev, tombstone, &bytes);
  if (rc == KW_OK) return bytes;
  log->failure = rc;
  return (kw_slice){0};
}

size_t kw_log_size(const kw_log *log, kw_revision rev, bool tombstone) {
  kw_slice bytes;
  return find_bytes(log, rev, tombstone, &bytes) == KW_OK ? bytes.len : 0;
}

/* Prefetches a record, or the beginning of it. */
static void prefetch(const kw_blob *record) {
  for (size_t at = 0; record != NULL && at < PREFETCH_BYTES; at += CACHE_LINE)
    __builtin_prefetch((const char *)record + at);
}

/* Prefetches the entries; then reads them, and prefetches the records. */
static void read_batch(const kw_log *log, const kw_revision *revs, size_t n,
                       const kw_blob **records) {
  const directory_entry *in[KW_LOG_BATCH];
  for (size_t i = 0; i < n; i++) {
    in[i] = &log->directory[directory_until(log, revs[i]) - 1];
    uint64_t guess = guess_of(in[i], revs[i]);
    if (guess < KW_LOG_CHUNK) __builtin_prefetch(&in[i]->chunk->entries[guess]);
  }
  for (size_t i = 0; i < n; i++) {
    records[i] = find_in(in[i], revs[i])->record;
    prefetch(records[i]);
  }
}

void kw_log_read_batch(kw_log *log, const kw_revision *revs, size_t n, const kw_blob **records) {
  if (log->database == NULL) {
    read_batch(log, revs, n, records);
    return;
  }
  for (size_t i = 0; i < n; i++) records[i] = kw_log_read(log, revs[i], false);
}

static kw_log_cursor seek_tail(const kw_log *log, kw_revision rev) {
  size_t until = directory_until(log, rev);
  if (until == 0) return (kw_log_cursor){0};
  const directory_entry *in = &log->directory[until - 1];
  uint64_t at = guess_of(in, rev);
  if (at >= in->chunk->n || !is_at(in->chunk, (uint32_t)at, rev)) at = entry_from(in->chunk, rev);
  return (kw_log_cursor){.chunk = until - 1, .at = at};
}

kw_log_cursor kw_log_seek(const kw_log *log, kw_revision rev) {
  if (is_on_disk(log, rev.main)) return (kw_log_cursor){.next = rev, .is_on_disk = true};
  return seek_tail(log, rev);
}

static bool next_in_tail(const kw_log *log, kw_log_cursor *cursor, kw_log_entry *found) {
  for (; cursor->chunk < log->n; *cursor = (kw_log_cursor){.chunk = cursor->chunk + 1}) {
    const chunk *c = log->directory[cursor->chunk].chunk;
    while (cursor->at < c->n) {
      const entry *e = &c->entries[cursor->at++];
      if (cursor->at + AHEAD <= c->n) prefetch(e[AHEAD].record);
      if (e->record == NULL) continue;
      *found = (kw_log_entry){revision_of(e), e->tombstone, kw_blob_slice(e->record), e->record};
      return true;
    }
  }
  return false;
}

/* Reads the records of the database first, then those of the tail. */
bool kw_log_next(kw_log *log, kw_log_cursor *cursor, kw_log_entry *found) {
  kw_database_entry e;
  if (!cursor->is_on_disk) return next_in_tail(log, cursor, found);
  int rc = kw_database_next(log->database, cursor->next, &e);
  if (rc > 0 && e.rev.main <= log->on_disk) {
    cursor->next = (kw_revision){.main = e.rev.main, .sub = e.rev.sub + 1};
    *found = (kw_log_entry){.rev = e.rev, .tombstone = e.tombstone, .bytes = e.record};
    if (kw_keyvalue_has_key(e.record)) return true;
    rc = KW_ERR_CORRUPT;
  }
  if (rc < 0) {
    log->failure = rc;
    return false;
  }
  *cursor = seek_tail(log, (kw_revision){.main = log->on_disk + 1});
  return next_in_tail(log, cursor, found);
}

/* }====== */

/* {====== Removing ====== */

static void squeeze(chunk *c) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    if (c->entries[i].record != NULL) c->entries[kept++] = c->entries[i];
  }
  c->n = kept;
  c->holes = 0;
}

/* Appends a squeezed chunk to the previous one, if both are small and memory is not short. */
static bool join(kw_log *log, size_t at) {
  chunk *c = log->directory[at].chunk, *before = log->directory[at - 1].chunk;
  uint32_t n = before->n + c->n;
  if (n > KW_LOG_CHUNK / 2) return false;
  if (n > before->cap) {
    before = resize_chunk(before, KW_LOG_CHUNK / 2);
    if (before == NULL) return false;
    log->directory[at - 1].chunk = before;
  }
  memcpy(&before->entries[before->n], c->entries, c->n * sizeof c->entries[0]);
  before->n = n;
  before->holes += c->holes;
  before->bytes += c->bytes;
  remove_chunk(log, at);
  return true;
}

static void tidy(kw_log *log, size_t at) {
  chunk *c = log->directory[at].chunk;
  if (at == log->n - 1 || c->holes * 2 < c->n) return; /* the tail is still filled */
  squeeze(c);
  if (c->n == 0) {
    remove_chunk(log, at);
    return;
  }
  if (at > 0 && join(log, at)) return;
  chunk *smaller = resize_chunk(c, c->n);
  if (smaller != NULL) log->directory[at].chunk = smaller;
}

static void remove_from_tail(kw_log *log, kw_revision rev) {
  size_t in = directory_until(log, rev) - 1;
  entry *e = find_in(&log->directory[in], rev);
  assert(e != NULL && e->record != NULL);
  release_entry(log, log->directory[in].chunk, e);
  log->directory[in].chunk->holes++;
  tidy(log, in);
}

static void remove_from_disk(kw_log *log, kw_revision rev, bool tombstone) {
  kw_slice record;
  if (kw_database_read(log->database, rev, tombstone, &record) != KW_OK) return;
  bool ok = kw_commit_group_remove(log->group, rev, tombstone);
  assert(ok);
  (void)ok;
  log->count--;
  log->bytes -= kw_log_cost(record.len);
}

void kw_log_remove(kw_log *log, kw_revision rev, bool tombstone) {
  if (log->database == NULL) {
    remove_from_tail(log, rev);
  } else {
    remove_from_disk(log, rev, tombstone);
  }
}

bool kw_log_reserve_removals(kw_log *log, size_t n) {
  return log->database == NULL || kw_commit_group_reserve(log->group, n);
}

bool kw_log_may_remove(const kw_log *log, size_t n) {
  return log->database == NULL || log->group->n < n;
}

/* }====== */

/* {====== With a database ====== */

void kw_log_found(kw_log *log, const kw_database_entry *e) {
  log->count++;
  log->bytes += kw_log_cost(e->record.len);
}

bool kw_log_has_dropped(const kw_log *log) {
  return log->dropped != NULL;
}

/* Frees records from the end of a chunk, and the chunk once it is empty. */
void kw_log_free_dropped(kw_log *log) {
  kw_work work = kw_work_of_turn();
  for (chunk *c; (c = log->dropped) != NULL;) {
    while (c->n > 0 && kw_work_is_left(&work)) {
      kw_blob *record = c->entries[--c->n].record;
      kw_work_spend(&work, record == NULL ? 0 : record->len);
      if (record == NULL) continue;
      log->dropped_bytes -= kw_log_cost(record->len);
      kw_blob_release(record);
    }
    if (c->n > 0) return;
    log->dropped = c->next;
    kw_free(c);
  }
}

/* Adds a chunk that has left a directory to the dropped ones: its records are freed later. */
static void drop_chunk(kw_log *log, chunk *c) {
  log->dropped_bytes += c->bytes;
  c->next = log->dropped;
  log->dropped = c;
}

void kw_log_drop_all(kw_log *log, kw_log *old) {
  for (size_t i = 0; i < old->n; i++) drop_chunk(log, old->directory[i].chunk);
  log->dropped_bytes += old->dropped_bytes;
  for (chunk *c; (c = old->dropped) != NULL;) {
    old->dropped = c->next;
    c->next = log->dropped;
    log->dropped = c;
  }
  old->n = 0;
  kw_log_free(old);
}

/* Removes the first `n` chunks from the directory. */
static void drop_chunks(kw_log *log, size_t n) {
  for (size_t i = 0; i < n; i++) {
    log->tail_bytes -= log->directory[i].chunk->bytes;
    drop_chunk(log, log->directory[i].chunk);
  }
  log->n -= n;
  if (n > 0) memmove(log->directory, log->directory + n, log->n * sizeof log->directory[0]);
}

/* Drops the entries up to `rev` of the first chunk: they become its only holes. The entries after them keep their
 * addresses: commit groups point to them. */
static void drop_first(kw_log *log, int64_t rev) {
  chunk *c = log->directory[0].chunk;
  while (c->holes < c->n && c->entries[c->holes].main <= rev)
    release_entry(log, c, &c->entries[c->holes++]);
}

/* Returns how many chunks have only entries up to `rev`. */
static size_t chunks_until(const kw_log *log, int64_t rev) {
  size_t n = 0;
  for (; n < log->n; n++) {
    const chunk *c = log->directory[n].chunk;
    if (c->n > 0 && c->entries[c->n - 1].main > rev) break;
  }
  return n;
}

void kw_log_move_to_disk(kw_log *log, int64_t rev) {
  size_t count = log->count, bytes = log->bytes;
  drop_chunks(log, chunks_until(log, rev));
  if (log->n > 0) drop_first(log, rev);
  log->count = count; /* the database has them */
  log->bytes = bytes;
  log->on_disk = rev;
  kw_log_free_dropped(log);
}

int64_t kw_log_on_disk(const kw_log *log) {
  return log->on_disk;
}

/* }====== */
