/* SPDX-License-Identifier: MIT */
#include "store/compaction.h"

#include "base/clock.h"
#include "codec/keyvalue.h"
#include "store/snapshot.h"

#define BYTES_PER_VISIT (64 * 1024) /* memory that is freed at the cost of one visit */

/* Returns the first revision to visit. The last compaction has left the tombstones at its own revision, so these are
 * visited again. */
static kw_revision from_of(const kw_store *store) {
  return (kw_revision){.main = store->compact_revision < 0 ? 0 : store->compact_revision};
}

/* Returns the first revision to visit after a requested compaction that is not durable yet. */
static kw_revision lower_of(const kw_store *store) {
  kw_revision from = from_of(store);
  return kw_revision_compare(store->compact_next, from) > 0 ? from : store->compact_next;
}

void kw_compaction_start(kw_store *store, int64_t rev) {
  if (store->hook.on_compact != NULL) store->hook.on_compact(store->hook.ctx);
  store->compact_next = lower_of(store);
  store->compact_revision = rev;
  if (!store->options.replica) store->compact_began = kw_clock_ns();
  if (store->compact_requested < rev) store->compact_requested = rev;
}

void kw_compaction_reset(kw_store *store, int64_t rev) {
  store->compact_requested = store->compact_revision = rev;
  store->compact_next = (kw_revision){.main = rev + 1};
  store->compact_is_stuck = store->compact_is_delayed = false;
}

int64_t kw_compaction_next(const kw_store *store) {
  if (store->compact_requested == store->compact_revision) return store->compact_next.main;
  return lower_of(store).main;
}

static bool is_running(const kw_store *store) {
  return store->compact_next.main <= store->compact_revision && !store->compact_is_stuck;
}

/* True if the compaction would remove events that were not delivered to the watchers that keep up. */
static bool is_undelivered(const kw_store *store) {
  return store->hook.undelivered != NULL &&
         store->hook.undelivered(store->hook.ctx) <= store->compact_revision;
}

bool kw_compaction_is_waiting(const kw_store *store) {
  return store->database != NULL && is_running(store) &&
         kw_log_on_disk(store->log) < store->compact_revision;
}

int64_t kw_compaction_deadline(const kw_store *store) {
  if (!is_running(store) || kw_snapshot_is_gathering(store)) return KW_NEVER;
  if (is_undelivered(store)) return KW_NEVER;
  if (kw_compaction_is_waiting(store)) return KW_NEVER;
  if (!kw_log_may_remove(store->log, (size_t)store->options.step_records)) return KW_NEVER;
  return store->compact_is_delayed ? store->compact_retry_at : INT64_MIN;
}

bool kw_store_is_compacting(const kw_store *store) {
  if (store->failure != KW_OK || store->compact_is_stuck) return false;
  return store->compact_requested > store->compact_revision || is_running(store);
}

int kw_store_compaction_failure(const kw_store *store) {
  return is_running(store) && store->compact_is_delayed ? KW_ERR_NO_MEMORY : KW_OK;
}

static void forget_first(kw_store *store, kw_key_history *history) {
  const kw_change *first = kw_key_history_first(history);
  kw_log_remove(store->log, kw_change_revision(first), first->tombstone);
  kw_key_history_drop_first(history);
  store->counters.removed++;
}

/* Returns how many changes are known up to and including the one at `rev`. They are few, since replaced changes before
 * the compacted revision were removed when they were visited. Returns 0 if `rev` is not known: the database still has a
 * removed record until the removal is durable. */
static size_t count_until(const kw_key_history *history, kw_revision rev) {
  if (history == NULL) return 0;
  const kw_change *all = kw_key_history_changes(history);
  for (uint32_t i = history->first; i < history->n && all[i].main <= rev.main; i++) {
    if (kw_revision_compare(kw_change_revision(&all[i]), rev) == 0) return i - history->first + 1;
  }
  return 0;
}

/* True if a later change, up to the compacted revision, has replaced the first one. Changes of the compacted revision
 * itself are not replaced: a watch may begin there, and receives all of them. */
static bool is_first_replaced(const kw_store *store, const kw_key_history *history) {
  const kw_change *first = kw_key_history_first(history);
  int64_t until = store->compact_revision;
  return history->n - history->first > 1 && first->main < until && first[1].main <= until;
}

/* Returns how many changes of the key were examined, or -1 if memory is short. */
static int64_t visit(kw_store *store, kw_revision rev, bool tombstone, kw_slice key) {
  kw_key_history *history = kw_index_find(&store->index, key);
  size_t n = count_until(history, rev);
  if (n == 0) return 1;
  if (!kw_log_reserve_removals(store->log, n)) return -1;
  for (size_t i = 0; i < n && is_first_replaced(store, history); i++) forget_first(store, history);
  bool is_first = kw_revision_compare(kw_change_revision(kw_key_history_first(history)), rev) == 0;
  if (is_first && tombstone && rev.main < store->compact_revision) forget_first(store, history);
  if (kw_key_history_is_empty(history)) kw_index_remove(&store->index, history);
  return (int64_t)n;
}

/* Ends a step; the next one begins at `rev`. `rc` is KW_OK, or the error of a record that could not be visited. Returns
 * true if the next step can follow at once. A damaged record arms the alarm. */
static bool stop(kw_store *store, kw_revision rev, int rc) {
  store->compact_next = rev;
  store->compact_is_stuck = rc == KW_ERR_CORRUPT;
  store->compact_is_delayed = rc == KW_ERR_NO_MEMORY;
  store->compact_retry_at = store->now + KW_RETRY_MS;
  if (store->compact_is_stuck) kw_store_arm(store, KW_ALARM_CORRUPT);
  return kw_compaction_deadline(store) <= store->now;
}

static bool step(kw_store *store) {
  kw_revision next = store->compact_next;
  kw_log_entry entry;
  kw_log_release(store->log);
  for (int64_t visits = 0;;) {
    kw_log_cursor cursor = kw_log_seek(store->log, next); /* a new one: a visit changes the log */
    bool is_there = kw_log_next(store->log, &cursor, &entry);
    int rc = is_there ? KW_OK : kw_log_failure(store->log);
    if (rc != KW_OK) return stop(store, next, rc);
    if (!is_there || entry.rev.main > store->compact_revision) break;
    bool is_enough = visits >= store->options.step_records;
    if (is_enough) return stop(store, entry.rev, KW_OK);
    visits += (int64_t)(kw_log_looked_at(&entry) / KW_WORK_BYTES);
    if (entry.blob != NULL) visits += (int64_t)(entry.bytes.len / BYTES_PER_VISIT);
    int64_t n = visit(store, entry.rev, entry.tombstone, kw_keyvalue_key_in(entry.bytes));
    if (n < 0) return stop(store, entry.rev, KW_ERR_NO_MEMORY);
    visits += n;
    next = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
  }
  store->compact_next = (kw_revision){.main = store->compact_revision + 1};
  store->compact_is_delayed = false;
  return false;
}

/* A replica compacts with almost every event, which is not measured. */
bool kw_compaction_step(kw_store *store) {
  if (store->options.replica) return step(store);
  int64_t began = kw_clock_ns();
  bool more = step(store);
  int64_t ended = kw_clock_ns();
  kw_histogram_add(&store->counters.compaction_pause, ended - began);
  if (!is_running(store) && !store->compact_is_stuck)
    kw_histogram_add(&store->counters.compaction, ended - store->compact_began);
  return more;
}
