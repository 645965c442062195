/* SPDX-License-Identifier: MIT */
#include "store/replica.h"

#include "base/mem.h"
#include "base/sorter.h"
#include "codec/keyvalue.h"
#include "store/compaction.h"
#include "store/write.h"

static int write_event(kw_store *store, int64_t rev, const kw_replica_event *event) {
  kw_key_history *history = kw_index_find_or_add(&store->index, event->kv.key);
  if (history == NULL) return KW_ERR_NO_MEMORY;
  if (event->is_delete) return kw_write_delete(store, rev, history);
  return kw_write_put(store, rev, history, &event->kv);
}

int kw_replica_apply(kw_store *store, int64_t rev, const kw_replica_event *events, size_t n) {
  kw_replica_finish(store);
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
  kw_retention_add(store, rev, 1, (int64_t)bytes, n);
  return KW_OK;
}

int kw_replica_advance(kw_store *store, int64_t rev) {
  kw_replica_finish(store);
  if (rev <= store->applied) return KW_ERR_STALE_REVISION;
  kw_store_set_applied(store, rev);
  return KW_OK;
}

int64_t kw_replica_changed_revision(const kw_store *store) {
  return store->retention.newest.revision;
}

/* {====== Filling ====== */

typedef enum phase { GATHERING, SORTING, WRITING, DONE } phase;

struct kw_replica_fill {
  kw_store *store; /* NULL: the store was freed, or another fill has begun */
  kw_replica_how how;
  phase phase;
  int rc; /* outcome, once the phase is DONE */
  int64_t rev;
  const kw_kv *kvs;
  size_t n;
  /* The values of the store when the fill began: nothing else may change the store during the fill. */
  uint64_t rewrites;
  int64_t applied;

  size_t at; /* index of the next kv to gather; then of the next item to write */
  /* The changes to write; `id` is the number of a kv, or the address of a history to delete. */
  kw_sorter sorter;
  kw_revision last; /* the last revision that was written */

  kw_index index; /* of a base: the new content, which replaces that of the replica */
  kw_log *log;

  const kw_key_history
      *visited;     /* of a merge: the last key of the replica that was visited, or NULL */
  size_t revisions; /* number of revisions that the merge has written */
  size_t bytes;     /* kw_log_bytes before the merge was written */
};

enum { PUT, DELETE }; /* `sub` of an item */

/* The store frees the contents that are not used, in steps. */
static void detach(kw_replica_fill *fill) {
  kw_store *store = fill->store;
  store->filling = NULL;
  store->is_merging = false;
  fill->store = NULL;
  if (fill->log == NULL) return;
  kw_index_drop(&store->abandoned);
  store->abandoned = fill->index;
  kw_log_drop_all(store->log, fill->log);
}

/* Undoes what a merge has written, in one piece: memory was short, or the merge is no longer wanted. */
static void undo(kw_replica_fill *fill) {
  kw_store *store = fill->store;
  kw_work work = kw_work_without_end();
  if (!store->is_merging) return;
  kw_write_undo_all(store, &work);
  store->applied = fill->applied;
  store->rewrites++;
}

void kw_replica_detach(kw_store *store) {
  if (store->filling == NULL) return;
  undo(store->filling);
  detach(store->filling);
}

kw_replica_fill *kw_replica_fill_new(kw_store *store, kw_replica_how how, int64_t rev,
                                     const kw_kv *kvs, size_t n) {
  kw_replica_fill *fill = kw_alloc_zeroed(sizeof *fill);
  if (fill == NULL) return NULL;
  if (how != KW_REPLICA_MERGE && (fill->log = kw_log_new(NULL, NULL)) == NULL) {
    kw_free(fill);
    return NULL;
  }
  kw_replica_detach(store);
  store->filling = fill;
  fill->store = store;
  fill->how = how;
  fill->rev = rev;
  fill->kvs = kvs;
  fill->n = n;
  fill->rewrites = store->rewrites;
  fill->applied = store->applied;
  return fill;
}

bool kw_replica_fill_is_of(const kw_replica_fill *fill, const kw_store *store, kw_replica_how how) {
  return fill->store == store && fill->how == how;
}

void kw_replica_fill_free(kw_replica_fill *fill) {
  if (fill->store != NULL) kw_replica_detach(fill->store);
  kw_sorter_drop(&fill->sorter);
  kw_free(fill);
}

static bool push(kw_replica_fill *fill, int64_t rev, unsigned kind, int64_t id) {
  kw_sorter_item item = {.head = (uint64_t)rev, .sub = kind, .id = id};
  return kw_sorter_push(&fill->sorter, item, NULL, NULL);
}

/* {====== The base ====== */

static int gather_base(kw_replica_fill *fill, kw_work *work) {
  for (; fill->at < fill->n; fill->at++) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    kw_work_spend(work, 0);
    if (!push(fill, fill->kvs[fill->at].mod_revision, PUT, (int64_t)fill->at))
      return KW_ERR_NO_MEMORY;
  }
  return KW_OK;
}

/* Adds a kv to the new contents. Kvs of one revision become its subs. */
static int write_kv(kw_replica_fill *fill, const kw_kv *kv) {
  bool is_next = kv->mod_revision == fill->last.main;
  kw_revision rev = {.main = kv->mod_revision, .sub = is_next ? fill->last.sub + 1 : 0};
  kw_key_history *history = kw_index_find_or_add(&fill->index, kv->key);
  if (history == NULL || !kw_key_history_reserve(history)) return KW_ERR_NO_MEMORY;
  kw_blob *record = kw_keyvalue_encode(kv);
  if (record == NULL) return KW_ERR_NO_MEMORY;
  if (kw_log_append(fill->log, rev, false, record) != KW_OK) {
    kw_blob_release(record);
    return KW_ERR_NO_MEMORY;
  }
  kw_key_history_push(history, (kw_change){.main = rev.main, .sub = rev.sub});
  history->state = (kw_key_state){.create_revision = kv->create_revision, .version = kv->version};
  kw_index_set_live(&fill->index, history, true);
  fill->last = rev;
  return KW_OK;
}

/* Replaces the empty content of the replica, which the fill takes over. */
static int use_base(kw_replica_fill *fill) {
  kw_store *store = fill->store;
  kw_index index = store->index;
  kw_log *log = store->log;
  store->index = fill->index;
  store->log = fill->log;
  fill->index = index;
  fill->log = log;
  store->applied = store->revision = fill->rev;
  kw_compaction_reset(store, fill->rev);
  store->base_revision = fill->rev;
  store->rewrites++;
  kw_retention_reset(store, fill->rev);
  return KW_OK;
}

/* }====== */

/* {====== The difference ====== */

/* Adds a put of the next kv to the changes, if its key is new or has changed. `history` is that of the key in the
 * replica, or NULL. */
static int compare_kv(kw_replica_fill *fill, const kw_key_history *history) {
  const kw_kv *kv = &fill->kvs[fill->at];
  int64_t before = history == NULL ? 0 : kw_key_history_last(history)->main;
  if (kv->mod_revision == before) return KW_OK;
  if (kv->mod_revision <= fill->applied) return KW_ERR_STALE_REVISION;
  return push(fill, kv->mod_revision, PUT, (int64_t)fill->at) ? KW_OK : KW_ERR_NO_MEMORY;
}

/* Both the keys of the replica and the kvs are in order. A key that exists stays where it is: nothing else changes the
 * replica. */
static int gather_difference(kw_replica_fill *fill, kw_work *work) {
  const kw_index *index = &fill->store->index;
  kw_slice from = fill->visited == NULL ? kw_slice_of("", 0) : kw_key_history_key(fill->visited);
  kw_index_cursor cursor = kw_index_seek(index, from);
  const kw_key_history *history = kw_index_next_live(index, &cursor);
  if (history != NULL && history == fill->visited) history = kw_index_next_live(index, &cursor);
  while (fill->at < fill->n || history != NULL) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    kw_work_spend(work, 0);
    int order = fill->at == fill->n ? -1
                : history == NULL
                    ? 1
                    : kw_slice_compare(kw_key_history_key(history), fill->kvs[fill->at].key);
    if (order < 0) {
      if (!push(fill, fill->rev, DELETE, (int64_t)(intptr_t)history)) return KW_ERR_NO_MEMORY;
    } else {
      int rc = compare_kv(fill, order == 0 ? history : NULL);
      if (rc != KW_OK) return rc;
      fill->at++;
    }
    if (order > 0) continue;
    fill->visited = history;
    history = kw_index_next_live(index, &cursor);
  }
  return KW_OK;
}

/* Begins to write the difference, which becomes visible as a whole. */
static int begin_merge(kw_replica_fill *fill) {
  kw_store *store = fill->store;
  if (fill->rev == fill->applied) return fill->sorter.n == 0 ? KW_OK : KW_ERR_STALE_REVISION;
  store->live_before = store->index.live;
  store->is_merging = true;
  fill->bytes = kw_log_bytes(store->log);
  return KW_OK;
}

static int write_change(kw_replica_fill *fill, const kw_sorter_item *item) {
  kw_store *store = fill->store;
  int64_t rev = (int64_t)item->head;
  if (rev != fill->last.main) {
    kw_write_commit(store);
    fill->revisions++;
    fill->last.main = store->applied = rev;
  }
  if (item->sub == DELETE) return kw_write_delete(store, rev, (void *)(intptr_t)item->id);
  const kw_kv *kv = &fill->kvs[item->id];
  kw_key_history *history = kw_index_find_or_add(&store->index, kv->key);
  return history == NULL ? KW_ERR_NO_MEMORY : kw_write_put(store, rev, history, kv);
}

/* Opens a gap, or extends an older gap that the replica has not left yet. */
static void open_gap(kw_store *store, int64_t after, int64_t rev) {
  bool is_extended = store->gap_until > after;
  if (!is_extended) {
    kw_retention_forget(store, &store->gap_end);
    store->gap_after = after;
  }
  store->gap_until = rev;
}

/* Makes the difference visible. */
static int use_difference(kw_replica_fill *fill) {
  kw_store *store = fill->store;
  if (!store->is_merging) return KW_OK;
  size_t bytes = kw_log_bytes(store->log) - fill->bytes;
  kw_write_commit(store);
  kw_write_forget_undo(store, store->undo.committed);
  store->is_merging = false;
  open_gap(store, fill->applied, fill->rev);
  kw_store_set_applied(store, fill->rev);
  if (fill->revisions > 0)
    kw_retention_add(store, fill->last.main, (int64_t)fill->revisions, (int64_t)bytes,
                     fill->sorter.n);
  store->gap_end = store->retention.newest;
  store->gap_end.revision = fill->rev;
  return KW_OK;
}

/* }====== */

static int gather(kw_replica_fill *fill, kw_work *work) {
  bool is_merge = fill->how == KW_REPLICA_MERGE;
  bool is_late = !is_merge && fill->store->base_revision > 0;
  if (is_late || fill->rev < fill->applied) return KW_ERR_STALE_REVISION;
  return is_merge ? gather_difference(fill, work) : gather_base(fill, work);
}

/* Sorting and writing look anywhere in memory: both cost more than a visit. */
static int sort(kw_replica_fill *fill, kw_work *work) {
  while (!kw_sorter_settle(&fill->sorter, NULL, NULL)) {
    kw_work_spend(work, KW_ORDER_BYTES);
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
  }
  fill->at = 0;
  return fill->how == KW_REPLICA_MERGE ? begin_merge(fill) : KW_OK;
}

static int write_all(kw_replica_fill *fill, kw_work *work) {
  bool is_merge = fill->how == KW_REPLICA_MERGE;
  while (fill->at < fill->sorter.n) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    const kw_sorter_item *item = &fill->sorter.items[fill->at++];
    size_t bytes = item->sub == DELETE ? 0 : fill->kvs[item->id].value.len;
    kw_work_spend(work, KW_ORDER_BYTES + bytes);
    int rc = is_merge ? write_change(fill, item) : write_kv(fill, &fill->kvs[item->id]);
    if (rc != KW_OK) return rc;
  }
  return is_merge ? use_difference(fill) : use_base(fill);
}

int kw_replica_fill_step(kw_replica_fill *fill, kw_work *work) {
  static int (*const phases[])(kw_replica_fill *, kw_work *) = {
      [GATHERING] = gather, [SORTING] = sort, [WRITING] = write_all};
  if (fill->phase == DONE) return fill->rc;
  const kw_store *store = fill->store;
  bool is_same = store != NULL && store->rewrites == fill->rewrites &&
                 (store->is_merging || store->applied == fill->applied);
  int rc = is_same ? KW_OK : KW_ERR_STALE_REVISION;
  while (rc == KW_OK && fill->phase != DONE) {
    rc = phases[fill->phase](fill, work);
    if (rc == KW_OK) fill->phase++;
  }
  if (rc == KW_UNFINISHED) return rc;
  fill->phase = DONE;
  fill->rc = rc;
  if (rc != KW_OK && fill->store != NULL) undo(fill);
  if (fill->store != NULL) detach(fill);
  return rc;
}

void kw_replica_finish(kw_store *store) {
  kw_work work = kw_work_without_end();
  if (store->is_merging) kw_replica_fill_step(store->filling, &work);
}

int kw_replica_use(kw_store *store, kw_replica_how how, int64_t rev, const kw_kv *kvs, size_t n) {
  kw_work work = kw_work_without_end();
  kw_replica_fill *fill = kw_replica_fill_new(store, how, rev, kvs, n);
  if (fill == NULL) return KW_ERR_NO_MEMORY;
  int rc = kw_replica_fill_step(fill, &work);
  kw_replica_fill_free(fill);
  return rc;
}

/* }====== */
