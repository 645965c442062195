/* SPDX-License-Identifier: MIT */
#include "store/store.h"

#include "base/mem.h"
#include "disk/recovery.h"
#include "store/alarm.h"
#include "store/check.h"
#include "store/compaction.h"
#include "store/durability.h"
#include "store/lessor.h"
#include "store/load.h"
#include "store/long_write.h"
#include "store/quota.h"
#include "store/read.h"
#include "store/replica.h"
#include "store/snapshot.h"
#include "store/txn.h"
#include "store/write.h"

#define MAP_MARGIN (INT64_C(64) << 20)
#define MAP_WITHOUT_QUOTA (INT64_C(1) << 40)

/* Bytes of the map for each byte of the journal: a record of half a page takes a page, and there are as many free
 * pages. */
#define MAP_PER_BYTE 4

kw_store_options kw_store_defaults(void) {
  return (kw_store_options){.max_request_bytes = KW_DEFAULT_MAX_REQUEST_BYTES,
                            .max_txn_ops = KW_DEFAULT_MAX_TXN_OPS,
                            .min_lease_ttl = KW_DEFAULT_MIN_LEASE_TTL_S,
                            .step_records = KW_DEFAULT_STEP_RECORDS,
                            .journal_segment_bytes = KW_JOURNAL_BYTES,
                            .has_threads = true,
                            .history_bytes = KW_DEFAULT_HISTORY_BYTES,
                            .history_idle_bytes = INT64_MAX,
                            .history_revisions = INT64_MAX,
                            .history_age_ms = KW_NEVER};
}

/* {====== Opening and freeing ====== */

/* A map has room for twice the quota: free pages can be reused only in part. */
static size_t map_bytes(const kw_store_options *options) {
  int64_t quota = options->quota < 0 ? MAP_WITHOUT_QUOTA : options->quota;
  return (size_t)(quota > INT64_MAX / 4 ? INT64_MAX / 2 : 2 * quota + MAP_MARGIN);
}

/* The groups that only the journal has must fit, even if the quota was lowered since. */
static size_t spare_bytes(const char *path) {
  return (size_t)(MAP_PER_BYTE * kw_journal_bytes_in(path) + MAP_MARGIN);
}

static int open_database(kw_store *store, char text[KW_REASON_ROOM]) {
  const char *path = store->options.path;
  size_t map = map_bytes(&store->options);
  int rc = kw_database_open(path, map, spare_bytes(path), &store->database, text);
  if (rc != KW_OK) return rc;
  rc = kw_recovery_replay(store->database, &store->lacks_journal, text);
  if (rc != KW_OK) return rc;
  rc = kw_committer_start(store->database, store->options.journal_segment_bytes,
                          store->options.has_threads, &store->committer);
  if (rc == KW_OK) store->group = kw_committer_group(store->committer);
  return rc == KW_ERR_STORAGE ? kw_database_refuse(text, path, "no thread can be started") : rc;
}

static int open_parts(kw_store *store, int64_t now, char text[KW_REASON_ROOM]) {
  int rc = store->options.path == NULL ? KW_OK : open_database(store, text);
  if (rc != KW_OK) return rc;
  kw_durability_init(store);
  store->log = kw_log_new(store->database, store->group);
  if (store->log == NULL) return KW_ERR_NO_MEMORY;
  return store->database == NULL ? KW_OK : kw_load_state(store, now, text);
}

int kw_store_open(const kw_store_options *options, int64_t now, kw_store **result,
                  char text[KW_REASON_ROOM]) {
  kw_store *store = kw_alloc(sizeof *store);
  if (store == NULL) return KW_ERR_NO_MEMORY;
  *store = (kw_store){.options = *options,
                      .applied = 1,
                      .revision = 1,
                      .compact_requested = -1,
                      .compact_revision = -1,
                      .surplus.due_at = KW_NEVER,
                      .counters = kw_store_counters_new(),
                      .now = now};
  kw_leases_init(&store->leases, options->seed, options->hash_seed);
  kw_link_init(&store->snapshots);
  if (store->options.quota == 0) store->options.quota = KW_DEFAULT_QUOTA;
  int rc = open_parts(store, now, text);
  if (rc == KW_OK) {
    *result = store;
  } else {
    kw_store_free(store);
  }
  return rc;
}

bool kw_store_is_inherited(const kw_store *store) {
  return store->database != NULL && kw_database_is_inherited(store->database);
}

/* The threads end before the records are freed that they may be writing. */
void kw_store_free(kw_store *store) {
  kw_snapshot_end_all(store);
  kw_replica_detach(store);
  kw_long_write_free(store);
  kw_bell_release(&store->bell);
  if (store->committer != NULL) kw_committer_close(store->committer);
  kw_leases_drop(&store->leases);
  kw_index_drop(&store->index);
  kw_index_drop(&store->abandoned);
  kw_rows_drop(&store->rows);
  if (store->log != NULL) kw_log_free(store->log);
  if (store->database != NULL) kw_database_close(store->database);
  kw_mem_trim_end(&store->surplus.trim);
  kw_free(store->undo.words);
  kw_counts_drop(&store->counts);
  kw_free(store);
}

/* }====== */

/* {====== Writes ====== */

size_t kw_store_most_of_txn(const kw_store *store) {
  return (size_t)kw_check_weight(store->options.max_txn_ops);
}

int kw_store_apply_within(kw_store *store, const kw_op *op, size_t limit, kw_work *work,
                          kw_arena *arena, kw_reply *reply) {
  kw_txn txn;
  int rc = kw_store_admit(store, op, arena);
  if (rc != KW_OK) return rc;
  bool only_reads = kw_store_only_reads(op);
  kw_log_release(store->log);
  if (op->kind == KW_OP_RANGE) {
    rc = kw_read_range(store, &op->range, store->revision, work, arena, reply);
    if (rc == KW_OK) kw_store_count_range(store);
  } else {
    kw_txn_begin(&txn, op, only_reads ? store->revision : 0, limit, arena, reply);
    rc = kw_txn_run(store, &txn, work);
    kw_txn_drop(&txn);
  }
  int failure = kw_log_failure(store->log);
  if (rc >= 0 && failure != KW_OK) rc = failure;
  if (rc == KW_UNFINISHED && only_reads) rc = KW_ONLY_READS;
  if (rc != KW_OK) kw_store_rollback(store);
  return rc;
}

int kw_store_apply(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply) {
  kw_work work = kw_work_without_end();
  if (!kw_store_only_reads(op)) kw_store_finish(store);
  return kw_store_apply_within(store, op, SIZE_MAX, &work, arena, reply);
}

int kw_store_compact(kw_store *store, int64_t revision) {
  kw_store_finish(store);
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (kw_alarm_is_corrupt(store)) return KW_ERR_CORRUPT;
  if (revision <= store->compact_requested) return KW_ERR_COMPACTED;
  if (revision > store->revision) return KW_ERR_FUTURE_REVISION;
  store->compact_requested = revision;
  store->durability.is_requested = true;
  if (store->database == NULL) kw_compaction_start(store, revision);
  return KW_OK;
}

/* }====== */

/* {====== Rows, and the alarms in them ====== */

/* Room in the group was reserved. */
static void write_row(kw_commit_group *group, const kw_rows *before, const kw_rows *after,
                      kw_slice name) {
  const kw_row *old = kw_rows_find(before, name), *new = kw_rows_find(after, name);
  if (new != NULL) {
    kw_commit_group_put_row(group, new->name, new->bytes);
  } else if (old != NULL) {
    kw_commit_group_remove_row(group, old->name);
  }
}

/* Changes a copy, which replaces the store's rows when nothing can fail from then on. */
int kw_store_change_rows(kw_store *store, const kw_row_change *changes, size_t n) {
  kw_commit_group *group = store->group;
  kw_rows after;
  kw_store_finish(store);
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (group != NULL && !kw_commit_group_reserve(group, n)) return KW_ERR_NO_MEMORY;
  if (!kw_rows_copy(&store->rows, &after)) return KW_ERR_NO_MEMORY;
  int rc = KW_OK;
  for (size_t i = 0; i < n && rc == KW_OK; i++) rc = kw_rows_apply(&after, &changes[i]);
  if (rc != KW_OK) {
    kw_rows_drop(&after);
    return rc;
  }
  for (size_t i = 0; i < n && group != NULL; i++)
    write_row(group, &store->rows, &after, changes[i].name);
  kw_rows_drop(&store->rows);
  store->durability.is_requested = true;
  store->rows = after;
  kw_alarm_read_rows(store);
  return KW_OK;
}

const kw_rows *kw_store_rows(const kw_store *store) {
  return &store->rows;
}

int kw_store_disarm(kw_store *store, kw_alarm alarm, kw_arena *arena) {
  size_t first, n = kw_alarm_count_rows(&store->rows, alarm, &first);
  kw_row_change *changes = kw_arena_array(arena, n, sizeof *changes);
  if (changes == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) {
    kw_slice name = kw_blob_slice(store->rows.items[first + i].name);
    changes[i] = (kw_row_change){.name = name, .is_erased = true};
  }
  int rc = n == 0 ? KW_OK : kw_store_change_rows(store, changes, n);
  return rc == KW_OK ? kw_store_disarm_own(store, alarm) : rc;
}

/* }====== */

/* {====== Reading ====== */

void kw_store_set_hook(kw_store *store, kw_store_hook hook) {
  store->hook = hook;
}

void kw_store_want_history(kw_store *store) {
  kw_retention_want(store, store->options.history_bytes);
}

kw_log_cursor kw_store_seek(const kw_store *store, kw_revision rev) {
  kw_log_release(store->log);
  return kw_log_seek(store->log, rev);
}

bool kw_store_next(const kw_store *store, kw_log_cursor *cursor, kw_log_entry *entry) {
  return kw_log_next(store->log, cursor, entry) && entry->rev.main <= store->revision;
}

/* Returns the put that a change of revision `rev` has replaced, or NULL. */
static const kw_change *previous(const kw_store *store, kw_slice key, int64_t rev,
                                 int64_t compacted) {
  if (rev - 1 < compacted) return NULL;
  const kw_key_history *history = kw_index_find(&store->index, key);
  const kw_change *change = history == NULL ? NULL : kw_key_history_at(history, rev - 1);
  return change == NULL || change->tombstone ? NULL : change;
}

kw_blob *kw_store_previous(const kw_store *store, kw_slice key, int64_t rev, int64_t compacted) {
  const kw_change *change = previous(store, key, rev, compacted);
  return change == NULL ? NULL : kw_store_record(store, change);
}

size_t kw_store_previous_size(const kw_store *store, kw_slice key, int64_t rev, int64_t compacted) {
  const kw_change *change = previous(store, key, rev, compacted);
  if (change == NULL) return 0;
  size_t size = kw_log_size(store->log, kw_change_revision(change), false);
  return size == 0 ? KW_PREVIOUS_UNREADABLE : size;
}

int kw_store_read_failure(const kw_store *store) {
  return kw_log_failure(store->log);
}

int64_t kw_store_first_event(const kw_store *store) {
  int64_t first = store->compact_revision;
  return first > store->base_revision ? first : store->base_revision + 1;
}

int64_t kw_store_first_event_from(const kw_store *store, int64_t rev) {
  int64_t first = kw_store_first_event(store);
  if (rev < first) rev = first;
  return rev > store->gap_after + 1 && rev <= store->gap_until ? store->gap_until + 1 : rev;
}

kw_store_status kw_store_get_status(const kw_store *store) {
  int64_t in_use, size = kw_quota_size(store, &in_use);
  unsigned own, alarms = kw_alarm_visible(store, &own);
  bool is_busy = kw_store_is_busy(store);
  return (kw_store_status){.revision = store->revision,
                           .compact_revision = store->compact_revision,
                           .keys = is_busy ? store->live_before : store->index.live,
                           .leases = (int64_t)store->leases.by_id.n,
                           .db_size = size,
                           .db_size_in_use = in_use,
                           .quota = store->options.quota < 0 ? 0 : store->options.quota,
                           .commits = (int64_t)store->durability.commits,
                           .alarms = alarms,
                           .own_alarms = own,
                           .lacks_journal = store->lacks_journal};
}

kw_store_metrics kw_store_get_metrics(const kw_store *store) {
  kw_store_metrics m = {.status = kw_store_get_status(store),
                        .counters = store->counters,
                        .revoked = store->leases.n_revoked,
                        .expired = store->leases.n_expired,
                        .applied = store->applied,
                        .index_bytes = kw_surplus_index_bytes(store),
                        .log_bytes = kw_log_memory(store->log),
                        .lease_bytes = kw_leases_bytes(&store->leases),
                        .disk = kw_committer_counters_new()};
  if (store->committer == NULL) return m;
  m.disk = *kw_committer_get_counters(store->committer);
  m.lacking_bytes = kw_committer_lacking_bytes(store->committer);
  return m;
}

const char *kw_store_failure(const kw_store *store) {
  return store->failure == KW_OK ? NULL : store->failure_text;
}

unsigned kw_store_trouble(const kw_store *store) {
  unsigned own;
  return kw_alarm_visible(store, &own) | (store->failure == KW_OK ? 0 : KW_STORAGE_FAILED);
}

int64_t kw_store_revision(const kw_store *store) {
  return store->revision;
}

int64_t kw_store_applied(const kw_store *store) {
  return store->applied;
}

int64_t kw_store_compact_revision(const kw_store *store) {
  return store->compact_revision;
}

int64_t kw_store_compact_requested(const kw_store *store) {
  return store->compact_requested;
}

bool kw_store_is_replica(const kw_store *store) {
  return store->options.replica;
}

/* }====== */

/* {====== Time ====== */

static int64_t earlier(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* True if content that is no longer used has to be freed. */
static bool has_dropped(const kw_store *store) {
  return kw_log_has_dropped(store->log) || store->abandoned.root != NULL;
}

static void free_dropped(kw_store *store) {
  kw_work work = kw_work_of_turn();
  kw_log_free_dropped(store->log);
  kw_index_drop_within(&store->abandoned, &work);
}

int64_t kw_store_deadline(const kw_store *store) {
  if (has_dropped(store) || kw_store_is_busy(store)) return INT64_MIN;
  if (kw_leases_has_forgotten(&store->leases, kw_undo_first(&store->undo))) return INT64_MIN;
  if (!kw_link_is_alone(&store->snapshots) && kw_snapshot_is_due(store)) return INT64_MIN;
  int64_t compaction = store->failure == KW_OK ? kw_compaction_deadline(store) : KW_NEVER;
  int64_t own = earlier(compaction, kw_retention_deadline(store));
  own = earlier(own, kw_surplus_deadline(store));
  return earlier(own, earlier(kw_lessor_deadline(store), kw_durability_deadline(store)));
}

/* Returns true if more is due. */
static bool step(kw_store *store, int64_t now) {
  kw_work work = kw_work_of_turn();
  store->now = now;
  kw_log_release(store->log);
  free_dropped(store);
  kw_snapshot_step(store);
  kw_leases_forget(&store->leases, kw_undo_first(&store->undo), &work);
  kw_store_continue(store, &work);
  if (store->is_merging) return has_dropped(store); /* the owner's calls continue the merge */
  if (kw_store_is_busy(store) || !kw_work_is_left(&work)) return true;
  if (store->failure != KW_OK) return has_dropped(store);
  kw_durability_step(store, now);
  bool more = kw_lessor_step(store, now) || has_dropped(store);
  if (kw_store_is_busy(store)) return true;
  kw_retention_step(store, now);
  if (kw_compaction_deadline(store) <= now) {
    more = kw_compaction_step(store) || more;
    kw_mem_join(); /* histories have shrunk, also if the next step comes later */
  }
  kw_store_flush(store);
  return more;
}

bool kw_store_step(kw_store *store, int64_t now) {
  kw_surplus_note(store);
  bool more = step(store, now);
  if (more) kw_mem_join();
  kw_surplus_step(store, now);
  return more;
}

/* }====== */
