/* SPDX-License-Identifier: MIT */
#include "disk/committer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "disk/pause.h"
#include "disk/recovery.h"
#include "model/error.h"

/* The append of a group with fewer bytes takes about as long as its flush. */
#define SMALL_BYTES (64 << 10)

/* Changes of a group: each bound is four times the one before. */
static const kw_buckets changes = {
    .unit = 1, .n = 10, .bounds = {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144}};

/* Time of a defragmentation, as in etcd: nanoseconds, shown as seconds, from 0.1 s to 409.6 s. */
#define DECISECOND INT64_C(100000000)
static const kw_buckets copies = {
    .unit = 1e-9,
    .n = 13,
    .bounds = {DECISECOND, 2 * DECISECOND, 4 * DECISECOND, 8 * DECISECOND, 16 * DECISECOND,
               32 * DECISECOND, 64 * DECISECOND, 128 * DECISECOND, 256 * DECISECOND,
               512 * DECISECOND, 1024 * DECISECOND, 2048 * DECISECOND, 4096 * DECISECOND}};

/* The state of the submitted group: there is none; the commit thread appends it; it waits for the checkpointer; the
 * checkpointer writes it; its outcome can be taken. */
typedef enum stage { NONE, APPENDING, WAITING, WRITING, DONE } stage;

struct kw_committer {
  kw_database *database;
  int64_t segment_bytes; /* of the journal */
  bool has_threads;
  kw_journal *journal; /* NULL: not opened yet */
  kw_checkpointer *checkpointer;
  kw_commit_group gathering;
  kw_commit_group submitted;
  stage stage;
  int rc;               /* outcome of the submitted group, if that is DONE */
  bool must_copy;       /* a defragmentation follows the submitted group */
  int64_t sequence;     /* of the newest durable group */
  bool has_appended;    /* a group was appended to the journal */
  bool is_appended;     /* the last submitted group was taken, and is in the journal */
  int failure;          /* KW_OK; or KW_ERR_STORAGE: it is unknown what a thread has written */
  kw_fault fault;       /* the cause of `failure` */
  int defragmented;     /* outcome of the last defragmentation */
  int copy_number;      /* see kw_checkpoint */
  int64_t submitted_at; /* when the submitted group was submitted: see kw_clock_ns */
  size_t changes;       /* number of its changes */
  kw_committer_counters counters;

  /* The fields below belong to the commit thread while it is working. */
  kw_worker worker;
  size_t leaves; /* see kw_database_leaves */
  /* Most bytes that the database may need for the groups before the submitted one. */
  size_t need_before;
  size_t need;           /* most bytes that it may need for the submitted group */
  size_t bytes;          /* of the records and rows of the submitted group */
  kw_journal *opened;    /* the journal; NULL: not opened yet */
  int append_rc;         /* outcome of the append of the submitted group */
  kw_fault append_fault; /* the cause of an append_rc of KW_ERR_STORAGE */
  int64_t flush_ns;      /* time of a flush, estimated from the last frames; 0: unknown */
  /* The submitted group has to be direct: no space in the journal, or to reserve. */
  bool is_redirected;
};

/* {====== The commit thread ====== */

static int open_journal(kw_committer *c) {
  return c->opened != NULL ? KW_OK : kw_recovery_begin(c->database, c->segment_bytes, &c->opened);
}

/* The write of a large frame takes longer than a flush, so its time is only an upper limit for a flush. A single slow
 * flush among fast ones has little weight. */
static void note_flush(kw_committer *c, int64_t ns) {
  if (c->flush_ns == 0 || ns < c->flush_ns) {
    c->flush_ns = ns;
  } else if (c->bytes <= SMALL_BYTES) {
    int64_t more = c->flush_ns + c->flush_ns / 4 + 1;
    c->flush_ns = ns < more ? ns : more;
  }
}

/* Space for the group is reserved in the database before the group is durable. A group may have millions of changes:
 * only this thread walks over them. */
static int append_group(kw_committer *c) {
  c->bytes = kw_commit_group_bytes(&c->submitted);
  c->need = kw_database_need(c->database, c->leaves, &c->submitted);
  int rc = open_journal(c);
  if (rc == KW_OK) rc = kw_database_reserve(c->database, &c->submitted, c->need_before + c->need);
  if (rc != KW_OK) return rc;
  c->append_fault.what = "the journal cannot be written";
  rc = kw_journal_append(c->opened, &c->submitted);
  if (rc == KW_OK) note_flush(c, kw_journal_write_ns(c->opened));
  return rc;
}

/* Fails if the directory was removed: anything written there would be lost. */
static void append(void *ctx) {
  kw_committer *c = ctx;
  c->is_redirected = false;
  kw_error_take_number();
  c->append_fault.what = KW_FAULT_DATABASE;
  c->append_rc = KW_OK;
  if (kw_database_is_removed(c->database)) {
    c->append_fault.what = KW_FAULT_REMOVED;
    c->append_rc = KW_ERR_STORAGE;
  }
  if (c->append_rc == KW_OK) {
    c->append_rc = append_group(c);
    c->is_redirected = c->append_rc == KW_ERR_NO_SPACE;
  }
  c->append_fault.number = kw_error_take_number();
}

int kw_committer_start(kw_database *database, int64_t segment_bytes, bool has_threads,
                       kw_committer **result) {
  kw_committer *c = kw_alloc_zeroed(sizeof *c);
  if (c == NULL) return KW_ERR_NO_MEMORY;
  c->database = database;
  c->segment_bytes = segment_bytes;
  c->sequence = kw_database_get_meta(database).sequence;
  c->counters = kw_committer_counters_new();
  c->has_threads = has_threads;
  int rc = kw_checkpointer_start(database, has_threads, &c->checkpointer);
  if (rc == KW_OK && !kw_worker_start(&c->worker, has_threads, append, c)) rc = KW_ERR_STORAGE;
  if (rc == KW_OK) {
    *result = c;
  } else {
    kw_committer_close(c);
  }
  return rc;
}

kw_worker *kw_committer_worker(kw_committer *c, int number) {
  if (number == 0) return &c->worker;
  return number == 1 ? kw_checkpointer_worker(c->checkpointer) : NULL;
}

void kw_committer_set_bell(kw_committer *c, kw_bell bell) {
  kw_worker_set_bell(&c->worker, kw_bell_retain(&bell));
  kw_checkpointer_set_bell(c->checkpointer, bell);
}

/* }====== */

/* {====== Groups ====== */

kw_commit_group *kw_committer_group(kw_committer *c) {
  return &c->gathering;
}

bool kw_committer_is_idle(const kw_committer *c) {
  return c->stage == NONE;
}

static void finish(kw_committer *c, int rc) {
  c->stage = DONE;
  c->rc = rc;
}

/* Begins to write the submitted group to the database, if the group waits and the checkpointer is idle. A failed
 * checkpoint is repeated first. */
static void begin_direct(kw_committer *c) {
  if (c->stage != WAITING || !kw_checkpointer_is_idle(c->checkpointer)) return;
  if (c->failure != KW_OK) {
    finish(c, c->failure);
  } else if (kw_checkpointer_repeats(c->checkpointer) != KW_OK) {
    kw_checkpointer_begin(c->checkpointer, NULL, false, 0);
  } else if (kw_checkpointer_begin(c->checkpointer, &c->submitted, c->must_copy, 0)) {
    c->stage = WRITING;
  } else {
    finish(c, KW_ERR_NO_MEMORY);
  }
}

/* Reuses the memory of the group that was taken last. */
void kw_committer_submit(kw_committer *c, const kw_commit_meta *meta, kw_commit_how how) {
  kw_commit_group gathering = c->submitted;
  c->submitted = c->gathering;
  c->submitted.meta = *meta;
  c->submitted.meta.sequence = c->sequence + 1;
  c->gathering = gathering;
  c->must_copy = how == KW_COMMIT_WITH_DEFRAGMENTATION;
  c->is_appended = false;
  c->submitted_at = kw_clock_ns();
  c->changes = c->submitted.n_items;
  if (how != KW_COMMIT_ALONE || c->failure != KW_OK ||
      !kw_checkpointer_reserve(c->checkpointer, c->submitted.n_items)) {
    c->stage = WAITING;
    begin_direct(c);
    return;
  }
  c->leaves = kw_database_leaves(c->database);
  c->need_before = kw_checkpointer_need(c->checkpointer);
  c->stage = APPENDING;
  kw_worker_begin(&c->worker);
}

/* Makes every later group fail, with the first fault. */
static void give_up(kw_committer *c, kw_fault fault) {
  if (c->failure == KW_OK) c->fault = fault;
  c->failure = KW_ERR_STORAGE;
}

/* Takes the finished job of the commit thread. */
static void take_appended(kw_committer *c, bool wait) {
  if (!kw_worker_take(&c->worker, wait)) return;
  c->journal = c->opened;
  if (c->append_rc == KW_ERR_STORAGE) give_up(c, c->append_fault);
  if (c->is_redirected) {
    c->stage = WAITING;
    return;
  }
  finish(c, c->append_rc);
  if (c->append_rc != KW_OK) return;
  c->has_appended = c->is_appended = true;
  kw_histogram_add(&c->counters.append, kw_journal_write_ns(c->journal));
  c->counters.journal_bytes = kw_journal_written(c->journal);
  kw_commit_meta meta = c->submitted.meta;
  kw_checkpointer_add(c->checkpointer, c->journal, &c->submitted, c->bytes, c->need);
  c->submitted.meta = meta;
}

static void count_checkpoint(kw_committer_counters *counters, const kw_checkpoint *done) {
  const int64_t times[] = {done->apply_ns, done->direct_ns};
  for (size_t i = 0; i < KW_LENGTH(times); i++) {
    if (times[i] == 0) continue;
    counters->checkpoints++;
    kw_histogram_add(&counters->checkpoint, times[i]);
  }
  if (done->copy_ns > 0) kw_histogram_add(&counters->copy, done->copy_ns);
}

/* Takes a finished checkpoint. If it has failed, the waiting group fails, too. */
static void take_checkpoint(kw_committer *c, bool wait) {
  kw_checkpoint done;
  if (!kw_checkpointer_take(c->checkpointer, wait, &done)) return;
  count_checkpoint(&c->counters, &done);
  if (done.rc == KW_ERR_STORAGE || done.direct_rc == KW_ERR_STORAGE) give_up(c, done.fault);
  if (c->stage == WRITING && done.is_direct) {
    if (done.direct_rc == KW_OK && c->must_copy) {
      c->defragmented = done.copy_rc;
      c->copy_number = done.copy_number;
    }
    finish(c, done.direct_rc);
  } else if (c->stage == WAITING && done.rc != KW_OK) {
    finish(c, done.rc);
  }
}

static void advance(kw_committer *c, bool wait) {
  if (c->stage == APPENDING) take_appended(c, wait);
  take_checkpoint(c, wait && (c->stage == WAITING || c->stage == WRITING));
  begin_direct(c);
}

/* Counts a group that has become durable. */
static void count_group(kw_committer *c) {
  int64_t ns = kw_clock_ns() - c->submitted_at;
  c->counters.groups++;
  c->counters.direct += !c->is_appended;
  c->counters.slow += ns > KW_SLOW_GROUP_NS;
  kw_histogram_add(&c->counters.changes, (int64_t)c->changes);
  kw_histogram_add(&c->counters.group, ns);
}

bool kw_committer_take(kw_committer *c, bool wait, kw_commit_meta *meta, int *rc) {
  do {
    advance(c, wait);
  } while (wait && c->stage != DONE && c->stage != NONE);
  if (c->stage != DONE) return false;
  c->stage = NONE;
  *meta = c->submitted.meta;
  *rc = c->rc;
  if (c->rc != KW_OK) return true;
  c->sequence = meta->sequence;
  count_group(c);
  kw_commit_group_clear(&c->submitted);
  return true;
}

int64_t kw_committer_flush_ns(const kw_committer *c) {
  return c->is_appended ? c->flush_ns : 0;
}

void kw_committer_ring_at(kw_committer *c, int64_t when) {
  kw_worker_ring_at(&c->worker, when);
}

int kw_committer_forget(kw_committer *c) {
  kw_commit_group newer = c->gathering;
  int rc = kw_commit_group_keep_removals(&c->submitted, &newer);
  c->gathering = c->submitted;
  c->submitted = newer;
  return rc;
}

int kw_committer_defragmented(const kw_committer *c, int *number) {
  *number = c->copy_number;
  return c->defragmented;
}

/* }====== */

kw_committer_counters kw_committer_counters_new(void) {
  return (kw_committer_counters){.changes.buckets = &changes,
                                 .group.buckets = &kw_buckets_ns,
                                 .append.buckets = &kw_buckets_ns,
                                 .checkpoint.buckets = &kw_buckets_ns,
                                 .copy.buckets = &copies};
}

const kw_committer_counters *kw_committer_get_counters(const kw_committer *c) {
  return &c->counters;
}

/* {====== Checkpoints ====== */

bool kw_committer_is_behind(const kw_committer *c) {
  return kw_checkpointer_is_behind(c->checkpointer);
}

bool kw_committer_is_checkpointing(const kw_committer *c) {
  return !kw_checkpointer_is_idle(c->checkpointer);
}

bool kw_committer_is_full(const kw_committer *c) {
  return kw_checkpointer_is_full(c->checkpointer) ||
         (c->journal != NULL && kw_journal_is_filling(c->journal));
}

bool kw_committer_has_removals(const kw_committer *c) {
  return kw_checkpointer_has_removals(c->checkpointer);
}

size_t kw_committer_lacking_bytes(const kw_committer *c) {
  return kw_checkpointer_bytes(c->checkpointer);
}

int kw_committer_repeats(const kw_committer *c) {
  return kw_checkpointer_repeats(c->checkpointer);
}

int kw_committer_failure(const kw_committer *c) {
  return c->failure;
}

kw_fault kw_committer_fault(const kw_committer *c) {
  return c->fault;
}

void kw_committer_checkpoint(kw_committer *c) {
  if (c->failure != KW_OK || kw_committer_is_checkpointing(c)) return;
  kw_checkpointer_begin(c->checkpointer, NULL, false,
                        c->stage == APPENDING ? c->submitted.n_items : 0);
}

const kw_commit_meta *kw_committer_applied(const kw_committer *c) {
  return kw_checkpointer_applied(c->checkpointer);
}

const kw_commit_group *kw_committer_lacking(const kw_committer *c, int which) {
  return kw_checkpointer_lacking(c->checkpointer, which);
}

/* }====== */

/* {====== Closing ====== */

/* True if all threads could be started. */
static bool is_complete(const kw_committer *c) {
  return c->checkpointer != NULL && (!c->has_threads || c->worker.has_thread);
}

/* Begins another epoch: the next open need not read the journal, since all its frames are old. */
static void age(const kw_committer *c) {
  kw_database_identity identity = kw_database_get_identity(c->database);
  identity.epoch++;
  identity.has_journal = false;
  kw_database_set_identity(c->database, identity);
}

/* Makes the submitted group durable, and then a checkpoint. If the checkpoint fails, its groups are still in the
 * journal. */
static void settle(kw_committer *c) {
  kw_commit_meta meta;
  int rc;
  kw_committer_take(c, true, &meta, &rc);
  take_checkpoint(c, true);
  if (kw_committer_is_behind(c)) kw_committer_checkpoint(c);
  take_checkpoint(c, true);
  if (c->has_appended && c->failure == KW_OK && !kw_committer_is_behind(c)) age(c);
}

/* After a fork the child's copies of mutexes may stay locked forever. */
static void end(kw_committer *c) {
  if (kw_database_is_inherited(c->database)) return;
  if (is_complete(c)) settle(c);
  if (c->worker.job != NULL) kw_worker_end(&c->worker);
}

void kw_committer_close(kw_committer *c) {
  end(c);
  if (c->checkpointer != NULL) kw_checkpointer_close(c->checkpointer);
  if (c->opened != NULL) kw_journal_close(c->opened);
  kw_commit_group_drop(&c->gathering);
  kw_commit_group_drop(&c->submitted);
  kw_free(c);
}

/* }====== */
