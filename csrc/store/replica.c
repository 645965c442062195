/* SPDX-License-Identifier: MIT */
#include "store/replica.h"

#include "base/mem.h"
#include "codec/keyvalue.h"
#include "store/compaction.h"
#include "store/write.h"

/* {====== History in bounds ====== */

static int64_t bytes_at(const kw_store *store, int64_t rev) {
  kw_log_cursor cursor = kw_log_seek(store->log, (kw_revision){.main = rev});
  kw_log_entry entry;
  int64_t sum = 0;
  while (kw_log_next(store->log, &cursor, &entry) && entry.rev.main == rev) {
    sum += (int64_t)kw_log_cost(entry.record);
  }
  return sum;
}

/* Moves the compacted revision up, one revision with events at a time, until the history after it is small enough. */
static void trim(kw_store *store) {
  kw_log_entry entry;
  int64_t floor = store->compact_revision;
  while (store->history_bytes > store->options.history_bytes) {
    kw_log_cursor cursor = kw_log_seek(store->log, (kw_revision){.main = floor + 1});
    if (!kw_log_next(store->log, &cursor, &entry)) break;
    floor = entry.rev.main;
    store->history_bytes -= bytes_at(store, floor);
  }
  if (floor > store->compact_revision) kw_compaction_start(store, floor);
}

/* }====== */

static int write_event(kw_store *store, int64_t rev, const kw_replica_event *event) {
  kw_key_history *history = kw_index_find_or_add(&store->index, event->kv.key);
  if (history == NULL) return KW_ERR_NO_MEMORY;
  if (event->is_delete) return kw_write_delete(store, rev, history);
  return kw_write_put(store, rev, history, &event->kv);
}

int kw_replica_apply(kw_store *store, int64_t rev, const kw_replica_event *events, size_t n) {
  if (rev <= store->applied) return KW_ERR_STALE_REVISION;
  size_t bytes = kw_log_bytes(store->log);
  for (size_t i = 0; i < n; i++) {
    int rc = write_event(store, rev, &events[i]);
    if (rc == KW_OK) continue;
    kw_store_rollback(store);
    return rc;
  }
  store->history_bytes += (int64_t)(kw_log_bytes(store->log) - bytes);
  kw_store_commit(store);
  if (store->applied < rev) return kw_replica_advance(store, rev); /* there were no events */
  trim(store);
  return KW_OK;
}

int kw_replica_advance(kw_store *store, int64_t rev) {
  if (rev <= store->applied) return KW_ERR_STALE_REVISION;
  kw_store_set_applied(store, rev);
  return KW_OK;
}

/* {====== The base ====== */

static int by_mod_revision(const void *a, const void *b) {
  const kw_kv *x = *(const kw_kv *const *)a, *y = *(const kw_kv *const *)b;
  if (x->mod_revision != y->mod_revision) return x->mod_revision < y->mod_revision ? -1 : 1;
  return (x > y) - (x < y); /* the order of keys */
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
  store->history_bytes = 0;
  if (store->hook.on_replace != NULL) store->hook.on_replace(before, store->hook.ctx);
  return KW_OK;
}

int kw_replica_load(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n) {
  if (rev < store->applied) return KW_ERR_STALE_REVISION;
  return kw_replica_replace(store, rev, kvs, n);
}

/* }====== */
