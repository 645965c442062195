/* SPDX-License-Identifier: MIT */
#include "store/durability.h"

#include "base/clock.h"
#include "store/alarm.h"
#include "store/compaction.h"
#include "store/load.h"
#include "store/write.h"

#define CHECKPOINT_MS 1000 /* how long a durable group may be only in the journal */

void kw_durability_init(kw_store *store) {
  kw_durability *d = &store->durability;
  kw_tickets_init(&d->tickets);
  d->checkpoint_at = KW_NEVER;
  if (store->database != NULL) d->submitted = d->durable = kw_database_get_meta(store->database);
}

/* {====== Submitting ====== */

static kw_commit_meta meta_of(const kw_store *store) {
  return (kw_commit_meta){.revision = store->applied,
                          .compact_revision = store->compact_requested,
                          .compacted_until = kw_compaction_next(store),
                          .alarms = (int64_t)store->alarms};
}

/* The revision rises only with changes of the group. */
static bool is_same(const kw_commit_meta *a, const kw_commit_meta *b) {
  return a->compact_revision == b->compact_revision && a->compacted_until == b->compacted_until &&
         a->alarms == b->alarms;
}

static bool has_more(const kw_store *store, const kw_commit_meta *meta) {
  const kw_durability *d = &store->durability;
  return store->group->n > store->undo.open || d->must_checkpoint || d->must_defragment ||
         !is_same(meta, &d->submitted);
}

static kw_commit_how how_of(const kw_durability *d) {
  if (d->must_defragment) return KW_COMMIT_WITH_DEFRAGMENTATION;
  return d->must_checkpoint ? KW_COMMIT_WITH_CHECKPOINT : KW_COMMIT_ALONE;
}

/* True if a pause lasts: the gathering group is held back until it ends, and the bell rings then. */
static bool is_held_back(kw_store *store) {
  kw_pause *pause = &store->durability.pause;
  if (pause->until == 0 || !kw_pause_lasts(pause, kw_clock_ns(), store->applied)) return false;
  if (!pause->has_bell) kw_committer_ring_at(store->committer, pause->until);
  pause->has_bell = true;
  return true;
}

/* Begins a pause after a group of this many revisions, if that is worthwhile. Without a bell there is no pause, as
 * nothing would report its end. */
static void pause_after(kw_store *store, int64_t revisions) {
  int64_t flush_ns = kw_committer_flush_ns(store->committer);
  if (flush_ns < KW_SLOW_FLUSH_NS || store->bell.ring == NULL) return;
  kw_pause_begin(&store->durability.pause, kw_clock_ns(), flush_ns, revisions, store->applied);
}

void kw_store_flush(kw_store *store) {
  kw_durability *d = &store->durability;
  if (store->database == NULL || store->failure != KW_OK || kw_store_is_busy(store)) return;
  if (d->is_delayed && !d->is_requested) return;
  kw_commit_meta meta = meta_of(store);
  if (!has_more(store, &meta) || !kw_committer_is_idle(store->committer)) return;
  if (how_of(d) == KW_COMMIT_ALONE && is_held_back(store)) return;
  kw_pause_end(&d->pause);
  kw_committer_submit(store->committer, &meta, how_of(d));
  store->undo.submitted = store->undo.committed;
  d->submitted = meta;
  d->must_checkpoint = d->must_defragment = false;
  if (d->is_requested) d->requested_ticket = d->tickets.gathering;
  d->is_submitted_requested = d->is_requested;
  d->is_requested = false;
  kw_tickets_submit(&d->tickets);
}

/* }====== */

/* {====== Checkpoints ====== */

/* True if a checkpoint should not wait for its time: also for a compaction that waits for it, and after the last step
 * of one, which frees pages. */
static bool is_wanted(const kw_store *store) {
  const kw_committer *committer = store->committer;
  return kw_committer_is_full(committer) || kw_compaction_is_waiting(store) ||
         (kw_committer_has_removals(committer) && !kw_store_is_compacting(store));
}

/* Begins a checkpoint if the database lacks groups, and the checkpoint is due or wanted. `knows_time`: store->now is
 * the current time, as only in a step; otherwise a step is due at once, which sets checkpoint_at. */
static void checkpoint(kw_store *store, bool knows_time) {
  kw_durability *d = &store->durability;
  kw_committer *committer = store->committer;
  if (store->failure != KW_OK || kw_committer_is_checkpointing(committer)) return;
  if (!kw_committer_is_behind(committer)) {
    d->checkpoint_at = KW_NEVER;
    return;
  }
  int repeats = kw_committer_repeats(committer);
  if (d->checkpoint_at == KW_NEVER) {
    d->checkpoint_at = INT64_MIN;
    if (repeats == KW_ERR_NO_SPACE) kw_alarm_raise_by_disk(store, KW_ALARM_NO_SPACE);
  }
  if (d->checkpoint_at == INT64_MIN && knows_time)
    d->checkpoint_at = store->now + (repeats == KW_OK ? CHECKPOINT_MS : KW_RETRY_MS);
  bool is_time = knows_time && store->now >= d->checkpoint_at;
  if (!is_time && (repeats != KW_OK || !is_wanted(store))) return;
  kw_committer_checkpoint(committer);
  d->checkpoint_at = KW_NEVER;
}

int kw_store_checkpoint(kw_store *store) {
  if (store->failure != KW_OK) return store->failure;
  store->durability.is_requested = true;
  store->durability.must_checkpoint = store->database != NULL;
  return KW_OK;
}

/* }====== */

/* {====== Taking the outcome ====== */

/* The hook is called while the group's records are in memory: the watchers read them. */
static void succeed(kw_store *store, const kw_commit_meta *meta) {
  kw_durability *d = &store->durability;
  kw_tickets_succeed(&d->tickets);
  d->commits++;
  pause_after(store, meta->revision - d->durable.revision);
  d->durable = *meta;
  d->is_delayed = false;
  kw_write_forget_undo(store, store->undo.submitted);
  if (meta->compact_revision > store->compact_revision)
    kw_compaction_start(store, meta->compact_revision);
  kw_store_set_visible(store, meta->revision);
}

/* Reads the rows of the durable state: those of the database, and what the groups that it lacks have changed. */
static int read_rows(kw_store *store) {
  kw_rows_drop(&store->rows);
  int rc = kw_load_rows(store);
  for (int which = 0; which < 2 && rc == KW_OK; which++)
    rc = kw_rows_apply_group(&store->rows, kw_committer_lacking(store->committer, which));
  return rc;
}

/* Makes the store read-only, for a reason. */
static void give_up(kw_store *store, kw_fault fault) {
  store->failure = KW_ERR_STORAGE;
  kw_fault_describe(kw_error_describe(KW_ERR_STORAGE)->text, fault, store->failure_text);
}

/* Notes that the state cannot be undone completely: the storage has failed then. */
static void note_loss(kw_durability *d) {
  d->has_loss = true;
  if (d->fault.what == NULL) d->fault.what = "the state before a failed write cannot be read";
}

/* Begins to return to the durable state. */
static void begin_undo(kw_store *store, int rc) {
  kw_durability *d = &store->durability;
  if (!kw_store_is_busy(store)) store->live_before = store->index.live;
  d->failed = rc;
  d->fault = kw_committer_fault(store->committer);
  store->counters.undone += (uint64_t)(store->applied - store->revision);
  kw_pause_end(&d->pause);
  if (kw_committer_forget(store->committer) != KW_OK) note_loss(d);
}

bool kw_durability_undo(kw_store *store, kw_work *work) {
  kw_durability *d = &store->durability;
  store->rewrites++; /* for reads that continue in a later call */
  if (!kw_write_undo_all(store, work)) return false;
  d->submitted = d->durable;
  store->applied = store->revision;
  store->compact_requested = store->compact_revision;
  store->alarms = (unsigned)d->durable.alarms;
  if (read_rows(store) != KW_OK) note_loss(d);
  int rc = d->failed;
  d->failed = KW_OK;
  kw_tickets_fail(&d->tickets, rc);
  if (d->has_loss) rc = KW_ERR_STORAGE;
  d->has_loss = false;
  if (rc == KW_ERR_NO_SPACE) kw_alarm_raise_by_disk(store, KW_ALARM_NO_SPACE);
  if (store->compact_is_stuck) kw_alarm_raise(store, KW_ALARM_CORRUPT);
  if (rc != KW_ERR_NO_SPACE && rc != KW_ERR_NO_MEMORY) give_up(store, d->fault);
  d->requested_ticket = 0;
  d->is_delayed = !d->is_submitted_requested;
  d->retry_at = store->now + KW_RETRY_MS;
  kw_leases_postpone(&store->leases, store->now, d->retry_at);
  store->write_failure = rc;
  return true;
}

/* Undoes all groups that are not durable; with `wait` in one piece. */
static void fail(kw_store *store, int rc, bool wait) {
  kw_work work = wait ? kw_work_without_end() : kw_work_of_turn();
  begin_undo(store, rc);
  kw_durability_undo(store, &work);
}

/* True if a checkpoint has failed, and the store has not reacted to that yet. */
static bool has_failed(const kw_store *store) {
  return store->failure == KW_OK && store->durability.failed == KW_OK &&
         kw_committer_failure(store->committer) != KW_OK && kw_committer_is_idle(store->committer);
}

/* Returns true if the outcome of a group was taken, or all later groups will fail. A failure is settled when the groups
 * are undone: with `wait` at once. Records that a checkpoint has written leave the memory. */
static bool take(kw_store *store, bool wait) {
  kw_commit_meta meta;
  int rc;
  if (store->database == NULL) return false;
  bool any = kw_committer_take(store->committer, wait, &meta, &rc);
  if (any && rc == KW_OK) succeed(store, &meta);
  if (any && rc != KW_OK) fail(store, rc, wait);
  if (has_failed(store)) {
    fail(store, KW_ERR_STORAGE, wait);
    any = true;
  }
  int64_t applied = kw_committer_applied(store->committer)->revision;
  if (applied > kw_log_on_disk(store->log)) kw_log_move_to_disk(store->log, applied);
  checkpoint(store, false);
  return any;
}

bool kw_store_poll(kw_store *store) {
  kw_log_release(store->log);
  bool any = take(store, false);
  if (any) kw_store_flush(store);
  return any;
}

int kw_store_wait(kw_store *store, uint64_t ticket) {
  while (!kw_store_is_settled(store, ticket)) {
    store->durability.is_requested = true;
    kw_pause_end(&store->durability.pause);
    kw_store_flush(store);
    if (!take(store, true)) return KW_ERR_STORAGE;
  }
  kw_store_flush(store);
  return kw_store_outcome(store, ticket);
}

/* }====== */

/* {====== Tickets ====== */

/* The ticket of all changes up to now, background changes included. */
static uint64_t newest_ticket(const kw_store *store) {
  if (store->database == NULL || store->failure != KW_OK) return 0;
  kw_commit_meta meta = meta_of(store);
  uint64_t gathering = store->durability.tickets.gathering;
  return has_more(store, &meta) ? gathering : gathering - 1;
}

uint64_t kw_store_ticket(const kw_store *store) {
  const kw_durability *d = &store->durability;
  return d->is_requested || store->failure != KW_OK ? newest_ticket(store) : d->requested_ticket;
}

void kw_store_include_background(kw_store *store) {
  store->durability.is_requested = true;
  store->compact_is_delayed = false;
  if (kw_compaction_is_waiting(store)) store->durability.must_checkpoint = true;
}

bool kw_store_is_settled(const kw_store *store, uint64_t ticket) {
  return kw_tickets_is_settled(&store->durability.tickets, ticket);
}

int kw_store_outcome(const kw_store *store, uint64_t ticket) {
  return kw_tickets_outcome(&store->durability.tickets, ticket);
}

uint64_t kw_store_settled(const kw_store *store) {
  return store->durability.tickets.settled;
}

bool kw_store_is_pending(const kw_store *store) {
  return !kw_store_is_settled(store, newest_ticket(store));
}

bool kw_store_is_durable(const kw_store *store) {
  return store->database != NULL;
}

/* }====== */

int kw_store_defragment(kw_store *store) {
  if (store->failure != KW_OK) return store->failure;
  store->durability.is_requested = true;
  store->durability.must_defragment = store->database != NULL;
  return KW_OK;
}

int kw_store_defragmented(const kw_store *store, char text[KW_REASON_ROOM]) {
  kw_fault fault = {.what = "a copy of it cannot be made"};
  if (store->database == NULL) return KW_OK;
  int rc = kw_committer_defragmented(store->committer, &fault.number);
  if (rc == KW_ERR_CORRUPT) fault = (kw_fault){.what = "it is damaged"};
  if (rc == KW_ERR_NO_SPACE)
    fault = (kw_fault){.what = "there is no room on the disk for a copy of it"};
  if (rc != KW_OK) kw_fault_describe("keywatch: the database was not defragmented", fault, text);
  return rc == KW_ERR_STORAGE ? KW_ERR_ABORTED : rc;
}

static kw_worker *worker_of(const kw_store *store, int number) {
  return store->database == NULL ? NULL : kw_committer_worker(store->committer, number);
}

bool kw_store_has_threads(const kw_store *store) {
  return store->database != NULL && store->options.has_threads;
}

bool kw_store_has_job(const kw_store *store, int number) {
  const kw_worker *worker = worker_of(store, number);
  return worker != NULL && kw_worker_has_job(worker);
}

void kw_store_work(kw_store *store, int number) {
  kw_worker *worker = worker_of(store, number);
  if (worker != NULL) kw_worker_work(worker);
}

/* The bell is also that of the snapshots that are opened later. */
void kw_store_set_bell(kw_store *store, kw_bell bell) {
  kw_bell_release(&store->bell);
  store->bell = bell;
  if (store->committer != NULL) kw_committer_set_bell(store->committer, kw_bell_retain(&bell));
}

/* While a checkpoint is being made, the bell rings at its end. */
int64_t kw_durability_deadline(const kw_store *store) {
  const kw_durability *d = &store->durability;
  if (store->database == NULL || store->failure != KW_OK) return KW_NEVER;
  int64_t retry_at = d->is_delayed ? d->retry_at : KW_NEVER;
  int64_t checkpoint_at =
      kw_committer_is_checkpointing(store->committer) ? KW_NEVER : d->checkpoint_at;
  return retry_at < checkpoint_at ? retry_at : checkpoint_at;
}

void kw_durability_step(kw_store *store, int64_t now) {
  if (store->database == NULL) return;
  if (now >= store->durability.retry_at) store->durability.is_delayed = false;
  checkpoint(store, true);
}
