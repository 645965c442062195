/* SPDX-License-Identifier: MIT */
#include "store/replica.h"

#include "base/mem.h"
#include "codec/keyvalue.h"
#include "store/compaction.h"
#include "store/snapshot.h"
#include "store/write.h"

static int write_event(kw_store *store, int64_t rev, const kw_replica_event *event) {
  kw_key_history *history = kw_index_find_or_add(&store->index, event->kv.key);
  if (history == NULL) return KW_ERR_NO_MEMORY;
  if (event->is_delete) return kw_write_delete(store, rev, history);
  return kw_write_put(store, rev, history, &event->kv);
}

int kw_replica_apply(kw_store *store, int64_t rev, const kw_replica_event *events, size_t n) {
  kw_store_finish(store);
  if (rev <= store->applied) return KW_ERR_STALE_REVISION;
  size_t bytes = kw_log_bytes(store->log);
  for (size_t i = 0; i < n; i++) {
    int rc = write_event(store, rev, &events[i]);
    if (rc == KW_OK) continue;
    kw_store_rollback(store);
    return rc;
  }
  bytes = kw_log_bytes(store->log) - bytes;
  kw_store_commit(store);
  if (store->applied < rev) return kw_replica_advance(store, rev); /* there were no events */
  kw_retention_add(store, rev, (int64_t)bytes, n);
  return KW_OK;
}

int kw_replica_advance(kw_store *store, int64_t rev) {
  kw_store_finish(store);
  if (rev <= store->applied) return KW_ERR_STALE_REVISION;
  kw_store_set_applied(store, rev);
  return KW_OK;
}

int64_t kw_replica_changed_revision(const kw_store *store) {
  return store->retention.newest.revision;
}

/* {====== The base ====== */

static int by_mod_revision(const void *a, const void *b) {
  const kw_kv *x = *(const kw_kv *const *)a, *y = *(const kw_kv *const *)b;
  int order = kw_order_signed(x->mod_revision, y->mod_revision);
  return order != 0 ? order : kw_order_unsigned((uintptr_t)x, (uintptr_t)y); /* that of keys */
}

static void make_final(kw_store *store) {
  kw_write_commit(store);
  kw_write_forget_undo(store, store->undo.committed);
}

/* Writes the base into an empty store in the order of revisions; kvs of one revision become its subs. After an error
 * the caller throws the contents away. */
static int write_base(kw_store *store, const kw_kv **sorted, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (i > 0 && sorted[i]->mod_revision > sorted[i - 1]->mod_revision) make_final(store);
    kw_key_history *history = kw_index_find_or_add(&store->index, sorted[i]->key);
    if (history == NULL) return KW_ERR_NO_MEMORY;
    int rc = kw_write_put(store, sorted[i]->mod_revision, history, sorted[i]);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int fill(kw_store *store, const kw_kv *kvs, size_t n) {
  if (n == 0) return KW_OK;
  const kw_kv **sorted = kw_alloc(n * sizeof *sorted);
  if (sorted == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) sorted[i] = &kvs[i];
  qsort(sorted, n, sizeof *sorted, by_mod_revision);
  int rc = write_base(store, sorted, n);
  kw_free(sorted);
  make_final(store);
  return rc;
}

int kw_replica_replace(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n) {
  kw_store_finish(store);
  kw_snapshot_gather_all(store);
  kw_index old_index = store->index;
  kw_log *old_log = store->log;
  kw_log *log = kw_log_new(NULL, NULL);
  if (log == NULL) return KW_ERR_NO_MEMORY;
  store->index = (kw_index){0};
  store->log = log;
  int rc = fill(store, kvs, n);
  if (rc != KW_OK) {
    kw_index_drop(&store->index);
    kw_log_free(log);
    store->index = old_index;
    store->log = old_log;
    return rc;
  }
  kw_index_drop(&old_index);
  kw_log_free(old_log);
  int64_t before = store->revision;
  store->applied = store->revision = rev;
  kw_compaction_reset(store, rev);
  store->base_revision = rev;
  store->rewrites++;
  store->gap_after = store->gap_until = 0;
  store->gap_end = (kw_retention_point){0};
  kw_retention_reset(store, rev);
  if (store->hook.on_replace != NULL) store->hook.on_replace(before, store->hook.ctx);
  return KW_OK;
}

int kw_replica_load(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n) {
  if (rev < store->applied) return KW_ERR_STALE_REVISION;
  return kw_replica_replace(store, rev, kvs, n);
}

/* }====== */

/* {====== The difference ====== */

/* The changes that lead from one state to another. */
typedef struct difference {
  kw_replica_event *events; /* in the order of revisions, once they are sorted */
  size_t n;
  size_t cap;
} difference;

static bool add_change(difference *diff, bool is_delete, kw_kv kv) {
  if (!kw_reserve(&diff->events, &diff->cap, diff->n + 1, sizeof *diff->events)) return false;
  diff->events[diff->n++] = (kw_replica_event){.is_delete = is_delete, .kv = kv};
  return true;
}

/* Returns the next live key, or NULL. */
static const kw_key_history *next_live(kw_index_cursor *cursor) {
  const kw_key_history *history;
  do {
    history = kw_index_next(cursor);
  } while (history != NULL && !kw_key_history_is_live(history));
  return history;
}

/* Adds what has become of a key that was in the replica and still is: nothing, or a put. */
static int compare_kv(const kw_store *store, difference *diff, const kw_key_history *history,
                      const kw_kv *kv) {
  int64_t before = history == NULL ? 0 : kw_key_history_last(history)->main;
  if (kv->mod_revision == before) return KW_OK;
  if (kv->mod_revision <= store->applied) return KW_ERR_STALE_REVISION;
  return add_change(diff, false, *kv) ? KW_OK : KW_ERR_NO_MEMORY;
}

/* Both the keys of the replica and the kvs are in order. */
static int find_difference(const kw_store *store, difference *diff, int64_t rev, const kw_kv *kvs,
                           size_t n) {
  kw_index_cursor cursor = kw_index_seek(&store->index, kw_slice_of("", 0));
  const kw_key_history *history = next_live(&cursor);
  int rc = KW_OK;
  for (size_t i = 0; rc == KW_OK && (i < n || history != NULL);) {
    int order = i == n            ? -1
                : history == NULL ? 1
                                  : kw_slice_compare(kw_key_history_key(history), kvs[i].key);
    if (order < 0) {
      kw_kv gone = {.key = kw_key_history_key(history), .mod_revision = rev};
      if (!add_change(diff, true, gone)) rc = KW_ERR_NO_MEMORY;
    } else {
      rc = compare_kv(store, diff, order == 0 ? history : NULL, &kvs[i++]);
    }
    if (order <= 0) history = next_live(&cursor);
  }
  return rc;
}

/* The keys of one revision stay in their order. */
static int by_revision(const void *a, const void *b) {
  const kw_replica_event *x = a, *y = b;
  int order = kw_order_signed(x->kv.mod_revision, y->kv.mod_revision);
  return order != 0 ? order : kw_slice_compare(x->kv.key, y->kv.key);
}

static int apply_difference(kw_store *store, difference *diff) {
  if (diff->n == 0) return KW_OK;
  qsort(diff->events, diff->n, sizeof *diff->events, by_revision);
  for (size_t from = 0, to; from < diff->n; from = to) {
    int64_t rev = diff->events[from].kv.mod_revision;
    for (to = from + 1; to < diff->n && diff->events[to].kv.mod_revision == rev;) to++;
    int rc = kw_replica_apply(store, rev, diff->events + from, to - from);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

/* Of an older gap that the replica has not left yet, this is the rest. */
static void open_gap(kw_store *store, int64_t rev) {
  bool goes_on = store->gap_until > store->applied;
  if (!goes_on) {
    kw_retention_forget(store, &store->gap_end);
    store->gap_after = store->applied;
  }
  store->gap_until = rev;
}

int kw_replica_merge(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n) {
  difference diff = {NULL, 0, 0};
  kw_store_finish(store);
  if (rev < store->applied) return KW_ERR_STALE_REVISION;
  int rc = find_difference(store, &diff, rev, kvs, n);
  bool is_there = rc == KW_OK && rev == store->applied;
  if (is_there && diff.n > 0) rc = KW_ERR_STALE_REVISION;
  if (rc == KW_OK && !is_there) {
    open_gap(store, rev);
    rc = apply_difference(store, &diff);
    if (rc == KW_OK && store->applied < rev) rc = kw_replica_advance(store, rev);
    store->gap_end = store->retention.newest;
    store->gap_end.revision = rev;
  }
  kw_free(diff.events);
  return rc;
}

/* }====== */
