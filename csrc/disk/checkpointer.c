/* SPDX-License-Identifier: MIT */
#include "disk/checkpointer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/error.h"

/* This many bytes of pending records, or this many pending changes, are enough for a checkpoint. */
#define FULL_BYTES KW_LIMIT(2 << 20, 4096)
#define FULL_CHANGES KW_LIMIT(16384, 32)

/* Groups that the database lacks, as one group. */
typedef struct batch {
  kw_commit_group group; /* its meta is that of the newest group */
  size_t bytes;          /* size of the records and rows */
  size_t need;           /* most bytes that the database needs for the groups */
  bool has_removals;     /* the groups remove records */
} batch;

struct kw_checkpointer {
  kw_database *database;
  kw_journal *journal; /* NULL: there is none yet */
  batch pending;
  batch applying;
  bool has_failed; /* it is unknown what the database has */
  int repeats; /* KW_OK; or why the last checkpoint has failed: the next one repeats `applying` */
  kw_commit_meta applied;

  /* The fields below belong to the thread while it is working. */
  kw_worker worker;
  kw_journal *released;          /* the journal in which the thread releases groups, or NULL */
  const kw_commit_group *direct; /* NULL: there is none */
  bool must_copy;                /* the thread must copy the database, for a defragmentation */
  bool must_close; /* the thread must close the file that a defragmentation has replaced */
  kw_checkpoint outcome;
};

/* {====== The thread ====== */

static bool has_groups(const batch *b) {
  return b->group.meta.sequence > 0;
}

/* Releases the groups up to this one in the journal, whose space can then be reused. */
static void release(kw_checkpointer *c, const kw_commit_group *group) {
  if (c->released != NULL) kw_journal_release(c->released, group->meta.sequence);
}

/* True if it is unknown what was written. */
static bool is_unknown(const kw_checkpoint *outcome) {
  return outcome->rc == KW_ERR_STORAGE || outcome->direct_rc == KW_ERR_STORAGE;
}

/* Notes the failure that has just occurred in this thread. */
static void note_fault(kw_checkpoint *outcome, const char *what) {
  outcome->fault = (kw_fault){what, kw_error_take_number()};
}

/* Returns the nanoseconds since `start`, at least 1, if `rc` is KW_OK; else 0. */
static int64_t time_since(int64_t start, int rc) {
  return rc == KW_OK ? kw_clock_ns() - start + 1 : 0;
}

static void write_pending(kw_checkpointer *c, kw_checkpoint *outcome) {
  int64_t start = kw_clock_ns();
  outcome->rc = kw_database_apply(c->database, &c->applying.group);
  outcome->apply_ns = time_since(start, outcome->rc);
  if (outcome->rc == KW_OK) release(c, &c->applying.group);
}

static void write_direct(kw_checkpointer *c, kw_checkpoint *outcome) {
  int64_t start = kw_clock_ns();
  outcome->direct_rc = outcome->rc;
  if (outcome->direct_rc == KW_OK) outcome->direct_rc = kw_database_write(c->database, c->direct);
  outcome->direct_ns = time_since(start, outcome->direct_rc);
  if (outcome->direct_rc == KW_OK) release(c, c->direct);
}

static void copy(kw_checkpointer *c, kw_checkpoint *outcome) {
  int64_t start = kw_clock_ns();
  outcome->copy_rc = kw_database_copy(c->database);
  outcome->copy_ns = time_since(start, outcome->copy_rc);
}

/* Writes the groups of the checkpoint. Fails if the database was removed: anything written there would be lost. */
static void apply(void *ctx) {
  kw_checkpointer *c = ctx;
  kw_checkpoint *outcome = &c->outcome;
  *outcome = (kw_checkpoint){.is_direct = c->direct != NULL};
  if (c->must_close) kw_database_close_replaced(c->database);
  if (kw_database_is_removed(c->database)) {
    outcome->rc = outcome->direct_rc = KW_ERR_STORAGE;
    outcome->fault.what = KW_FAULT_REMOVED;
    return;
  }
  kw_error_take_number();
  if (has_groups(&c->applying)) write_pending(c, outcome);
  if (c->direct != NULL) write_direct(c, outcome);
  if (is_unknown(outcome)) note_fault(outcome, KW_FAULT_DATABASE);
  if (c->direct != NULL && outcome->direct_rc == KW_OK && c->must_copy) copy(c, outcome);
  outcome->copy_number = kw_error_take_number();
}

int kw_checkpointer_start(kw_database *database, bool has_threads, kw_checkpointer **result) {
  kw_checkpointer *c = kw_alloc_zeroed(sizeof *c);
  if (c == NULL) return KW_ERR_NO_MEMORY;
  c->database = database;
  c->applied = kw_database_get_meta(database);
  if (!kw_worker_start(&c->worker, has_threads, apply, c)) {
    kw_checkpointer_close(c);
    return KW_ERR_STORAGE;
  }
  *result = c;
  return KW_OK;
}

kw_worker *kw_checkpointer_worker(kw_checkpointer *c) {
  return &c->worker;
}

/* After a fork the child's copy of the mutex may stay locked forever. */
void kw_checkpointer_close(kw_checkpointer *c) {
  if (!kw_database_is_inherited(c->database)) kw_worker_end(&c->worker);
  kw_commit_group_drop(&c->pending.group);
  kw_commit_group_drop(&c->applying.group);
  kw_free(c);
}

void kw_checkpointer_set_bell(kw_checkpointer *c, kw_bell bell) {
  kw_worker_set_bell(&c->worker, bell);
}

/* }====== */

/* {====== Pending groups ====== */

bool kw_checkpointer_reserve(kw_checkpointer *c, size_t n) {
  return kw_commit_group_reserve(&c->pending.group, n);
}

void kw_checkpointer_add(kw_checkpointer *c, kw_journal *journal, kw_commit_group *group,
                         size_t bytes, size_t need) {
  if (c->journal == NULL) c->journal = journal;
  c->pending.bytes += bytes;
  c->pending.need += need;
  if (kw_commit_group_has_removals(group)) c->pending.has_removals = true;
  kw_commit_group_move(group, &c->pending.group);
}

bool kw_checkpointer_is_behind(const kw_checkpointer *c) {
  return has_groups(&c->applying) || has_groups(&c->pending);
}

bool kw_checkpointer_is_full(const kw_checkpointer *c) {
  return c->pending.bytes >= FULL_BYTES || c->pending.group.n >= FULL_CHANGES;
}

bool kw_checkpointer_has_removals(const kw_checkpointer *c) {
  return c->pending.has_removals;
}

size_t kw_checkpointer_bytes(const kw_checkpointer *c) {
  return c->applying.bytes + c->pending.bytes;
}

size_t kw_checkpointer_need(const kw_checkpointer *c) {
  return c->applying.need + c->pending.need;
}

const kw_commit_group *kw_checkpointer_lacking(const kw_checkpointer *c, int which) {
  return which == 0 ? &c->applying.group : &c->pending.group;
}

/* }====== */

/* {====== Checkpoints ====== */

bool kw_checkpointer_is_idle(const kw_checkpointer *c) {
  return kw_worker_is_idle(&c->worker);
}

int kw_checkpointer_repeats(const kw_checkpointer *c) {
  return c->repeats;
}

/* Makes the pending groups the applying ones. Reuses the memory of the groups that were applied last. */
static bool move_on(kw_checkpointer *c, size_t n) {
  if (!kw_commit_group_reserve(&c->applying.group, n)) return false;
  batch pending = c->applying;
  c->applying = c->pending;
  c->pending = pending;
  return true;
}

bool kw_checkpointer_begin(kw_checkpointer *c, const kw_commit_group *direct, bool defragment,
                           size_t n) {
  if (c->repeats == KW_OK && !move_on(c, n)) return false;
  c->released = c->journal;
  c->direct = direct;
  c->must_copy = defragment;
  kw_worker_begin(&c->worker);
  return true;
}

static void clear(batch *b) {
  kw_commit_group_clear(&b->group);
  *b = (batch){.group = {.items = b->group.items, .cap = b->group.cap}};
}

/* Notes what the database has. */
static void note_applied(kw_checkpointer *c) {
  const kw_checkpoint *outcome = &c->outcome;
  c->repeats = outcome->rc;
  if (outcome->rc != KW_OK) return;
  if (has_groups(&c->applying)) c->applied = c->applying.group.meta;
  if (c->direct != NULL && outcome->direct_rc == KW_OK) c->applied = c->direct->meta;
  clear(&c->applying);
}

/* Replaces the database by its copy. Returns false if there is no copy, or if it cannot replace the database. If a
 * crash could undo the replacement, nothing more is written: KW_ERR_STORAGE. */
static bool swap(kw_checkpointer *c) {
  kw_checkpoint *outcome = &c->outcome;
  bool is_swapped = false;
  if (!c->must_copy || outcome->direct_rc != KW_OK || outcome->copy_rc != KW_OK) return false;
  kw_error_take_number();
  outcome->copy_rc = kw_database_swap(c->database, &is_swapped);
  if (is_swapped && outcome->copy_rc != KW_OK) {
    outcome->direct_rc = KW_ERR_STORAGE;
    note_fault(outcome, KW_FAULT_DATABASE);
  } else {
    outcome->copy_number = kw_error_take_number();
  }
  c->must_close = is_swapped;
  return is_swapped;
}

/* Moves the reader on. Even a write that has failed for lack of space may have written removals: the reader must
 * release their pages. */
static void move_reader(kw_checkpointer *c) {
  note_applied(c);
  if (!swap(c) && kw_database_renew(c->database) != KW_OK) {
    c->outcome.rc = c->outcome.direct_rc = KW_ERR_STORAGE;
    note_fault(&c->outcome, "the database cannot be read");
  }
}

/* If it is unknown what was written, the reader does not move, and all groups that it does not see remain in memory. */
bool kw_checkpointer_take(kw_checkpointer *c, bool wait, kw_checkpoint *outcome) {
  if (!kw_worker_take(&c->worker, wait)) return false;
  c->must_close = false;
  if (!is_unknown(&c->outcome)) move_reader(c);
  c->has_failed = is_unknown(&c->outcome);
  c->direct = NULL;
  c->must_copy = false;
  *outcome = c->outcome;
  if (c->must_close) kw_worker_begin(&c->worker);
  return true;
}

const kw_commit_meta *kw_checkpointer_applied(const kw_checkpointer *c) {
  return &c->applied;
}

/* }====== */
