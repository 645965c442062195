/* SPDX-License-Identifier: MIT */
#include "store/write.h"

#include "base/mem.h"
#include "codec/keyvalue.h"

/* Moves a key from one lease to another. The memory for attaching was reserved, or left by a detach. */
static void move_lease(kw_store *store, kw_key_history *history, int64_t from, int64_t to) {
  if (from == to) return;
  kw_lease *old = from == 0 ? NULL : kw_leases_find(&store->leases, from);
  kw_lease *new = to == 0 ? NULL : kw_leases_find(&store->leases, to);
  if (old != NULL) {
    kw_lease_detach(&store->leases, old, history);
    kw_leases_wait(&store->leases, old, store->undo.first + store->undo.n);
  }
  if (new != NULL) kw_lease_attach(&store->leases, new, history);
}

static void set_state(kw_store *store, kw_key_history *history, kw_key_state state,
                      bool is_asleep) {
  move_lease(store, history, history->state.lease, state.lease);
  history->state = state;
  history->is_asleep = is_asleep;
  kw_index_set_live(&store->index, history, kw_key_history_is_live(history));
}

/* Deletes a key that exists and has no lease, or undoes such a deletion: the history keeps the state. */
static void set_asleep(kw_store *store, kw_key_history *history, bool is_asleep) {
  history->is_asleep = is_asleep;
  kw_index_set_live(&store->index, history, !is_asleep);
}

static bool reserve_undo(kw_undo_list *undo) {
  return kw_reserve(&undo->words, &undo->cap, undo->n + KW_UNDO_CHANGE_WORDS, sizeof *undo->words);
}

/* Adds a step of the open write to the undo list, which has space for it. */
static inline void push_undo(kw_undo_list *undo, kw_undo step) {
  undo->open++;
  undo->n += kw_undo_write(undo->words + undo->n, &step);
}

/* Takes the newest step from the undo list. */
static inline kw_undo pop_undo(kw_undo_list *undo) {
  undo->n -= kw_undo_words(undo->words[undo->n - 1]);
  return kw_undo_read(undo->words + undo->n);
}

static void shrink_undo(kw_undo_list *undo) {
  if (undo->cap > KW_KEEP) kw_shrink(&undo->words, &undo->cap, undo->n, sizeof *undo->words);
}

/* Reserves memory for a change everywhere except in the log. */
static bool reserve(kw_store *store, kw_key_history *history, int64_t lease_id) {
  if (!reserve_undo(&store->undo) || !kw_key_history_reserve(history)) return false;
  if (lease_id == 0 || lease_id == history->state.lease) return true;
  return kw_lease_reserve(kw_leases_find(&store->leases, lease_id));
}

/* Adds a change to the open write. Takes the reference to the record, even after an error. The record may be NULL if
 * memory is short. A history that has no changes after an error is removed. */
static int add_change(kw_store *store, kw_key_history *history, kw_change change, kw_blob *record,
                      kw_key_state state) {
  kw_open_write *open = &store->open;
  change.sub = (uint32_t)open->n;
  if (record == NULL || !reserve(store, history, state.lease) ||
      kw_log_append(store->log, kw_change_revision(&change), change.tombstone, record) != KW_OK) {
    if (record != NULL) kw_blob_release(record);
    if (kw_key_history_is_empty(history)) kw_index_remove(&store->index, history);
    return KW_ERR_NO_MEMORY;
  }
  open->main = change.main;
  open->n++;
  bool falls_asleep =
      change.tombstone && kw_key_history_is_live(history) && history->state.lease == 0;
  kw_undo step = {.kind = falls_asleep ? KW_UNDO_DELETE : KW_UNDO_CHANGE, .history = history};
  if (!falls_asleep) {
    step.before = history->state;
    step.was_asleep = history->is_asleep;
  }
  push_undo(&store->undo, step);
  kw_key_history_push(history, change);
  if (falls_asleep) {
    set_asleep(store, history, true);
  } else {
    set_state(store, history, state, false);
  }
  return KW_OK;
}

int kw_write_put(kw_store *store, int64_t main, kw_key_history *history, const kw_kv *kv) {
  kw_key_state state = {.create_revision = kv->create_revision,
                        .version = kv->version,
                        .lease = store->options.replica ? 0 : kv->lease};
  return add_change(store, history, (kw_change){.main = main}, kw_keyvalue_encode(kv), state);
}

int kw_write_delete(kw_store *store, int64_t main, kw_key_history *history) {
  kw_kv kv = {.key = kw_key_history_key(history)};
  kw_change change = {.main = main, .tombstone = true};
  return add_change(store, history, change, kw_keyvalue_encode(&kv), (kw_key_state){0});
}

int kw_write_load(kw_store *store, kw_change change, const kw_kv *kv) {
  kw_key_history *history = kw_index_find_or_add(&store->index, kv->key);
  if (history == NULL) return KW_ERR_NO_MEMORY;
  kw_lease *lease = kv->lease == 0 ? NULL : kw_leases_find(&store->leases, kv->lease);
  kw_key_state state = {0};
  if (!change.tombstone)
    state = (kw_key_state){kv->create_revision, kv->version, lease == NULL ? 0 : kv->lease};
  if (!kw_key_history_reserve(history) || (lease != NULL && !kw_lease_reserve(lease))) {
    if (kw_key_history_is_empty(history)) kw_index_remove(&store->index, history);
    return KW_ERR_NO_MEMORY;
  }
  kw_key_history_push(history, change);
  set_state(store, history, state, false);
  return KW_OK;
}

/* {====== Leases ====== */

int kw_write_grant(kw_store *store, int64_t now, int64_t id, int64_t ttl) {
  if (!reserve_undo(&store->undo)) return KW_ERR_NO_MEMORY;
  kw_commit_group *group = store->group;
  if (group != NULL && !kw_commit_group_put_lease(group, id, ttl)) return KW_ERR_NO_MEMORY;
  kw_lease *lease = kw_leases_add(&store->leases, id, ttl, now);
  if (lease == NULL) {
    if (group != NULL) kw_commit_group_undo(group);
    return KW_ERR_NO_MEMORY;
  }
  push_undo(&store->undo, (kw_undo){.kind = KW_UNDO_GRANT, .lease = lease});
  store->counting.granted++;
  store->open.ttl = ttl;
  return KW_OK;
}

int kw_write_revoke(kw_store *store, kw_lease *lease) {
  if (!reserve_undo(&store->undo)) return KW_ERR_NO_MEMORY;
  kw_commit_group *group = store->group;
  if (group != NULL && !kw_commit_group_remove_lease(group, lease->id)) return KW_ERR_NO_MEMORY;
  if (!kw_leases_revoke(&store->leases, lease)) {
    if (group != NULL) kw_commit_group_undo(group);
    return KW_ERR_NO_MEMORY;
  }
  push_undo(&store->undo, (kw_undo){.kind = KW_UNDO_REVOKE, .lease = lease});
  kw_leases_wait(&store->leases, lease, store->undo.first + store->undo.n);
  return KW_OK;
}

/* }====== */

/* {====== Undoing ====== */

static void undo_change(kw_store *store, const kw_undo *step) {
  kw_key_history *history = step->history;
  kw_key_history_pop(history);
  set_state(store, history, step->before, step->was_asleep);
  if (kw_key_history_is_empty(history)) kw_index_remove(&store->index, history);
}

static void undo_delete(kw_store *store, kw_key_history *history) {
  kw_key_history_pop(history);
  set_asleep(store, history, false);
}

static void undo_step(kw_store *store, const kw_undo *step) {
  switch (step->kind) {
    case KW_UNDO_CHANGE: undo_change(store, step); break;
    case KW_UNDO_DELETE: undo_delete(store, step->history); break;
    case KW_UNDO_GRANT: kw_leases_remove(&store->leases, step->lease); break;
    case KW_UNDO_REVOKE: kw_leases_put_back(&store->leases, step->lease); break;
  }
}

/* Counts a lease that the open write has granted. */
static void count_grant(kw_store *store) {
  kw_histogram_add(&store->counters.lease_ttl, store->open.ttl);
  store->open.ttl = 0;
}

void kw_write_commit(kw_store *store) {
  store->open.n = 0;
  store->counters.ops = store->counting;
  if (store->open.ttl > 0) count_grant(store);
  store->undo.open = 0;
  store->undo.committed = store->undo.n;
}

/* Undoes the newest steps until the list has `n` words; also removes them from the commit group `group`, unless that is
 * NULL. */
static bool undo_until(kw_store *store, size_t n, kw_commit_group *group, kw_work *work) {
  kw_undo_list *undo = &store->undo;
  while (undo->n > n) {
    if (!kw_work_is_left(work)) return false;
    kw_undo step = pop_undo(undo);
    bool has_record = step.kind == KW_UNDO_CHANGE || step.kind == KW_UNDO_DELETE;
    if (undo->open > 0) undo->open--;
    if (group != NULL) kw_commit_group_undo(group);
    kw_work_spend(work, has_record ? kw_log_undo(store->log) : 0);
    undo_step(store, &step);
  }
  shrink_undo(undo);
  store->open.n = 0;
  store->open.ttl = 0;
  store->counting = store->counters.ops;
  return true;
}

bool kw_write_rollback_within(kw_store *store, kw_work *work) {
  return undo_until(store, store->undo.committed, store->group, work);
}

void kw_write_rollback(kw_store *store) {
  kw_work work = kw_work_without_end();
  kw_write_rollback_within(store, &work);
}

bool kw_write_undo_all(kw_store *store, kw_work *work) {
  kw_undo_list *undo = &store->undo;
  bool is_done = undo_until(store, 0, NULL, work);
  undo->submitted = kw_min_size(undo->submitted, undo->n);
  undo->committed = kw_min_size(undo->committed, undo->n);
  return is_done;
}

void kw_write_forget_undo(kw_store *store, size_t n) {
  kw_undo_list *undo = &store->undo;
  kw_work work = kw_work_of_turn();
  undo->n -= n;
  undo->committed -= n;
  undo->submitted = 0;
  undo->first += n;
  if (undo->n > 0) memmove(undo->words, undo->words + n, undo->n * sizeof *undo->words);
  shrink_undo(undo);
  kw_leases_forget(&store->leases, kw_undo_first(undo), &work);
}

bool kw_store_is_busy(const kw_store *store) {
  return store->long_write != NULL || store->durability.failed != KW_OK || store->is_merging;
}

/* While the store is busy, the open write belongs to the long write, and the caller has only read. */
void kw_store_commit(kw_store *store) {
  if (kw_store_is_busy(store)) return;
  bool has_changes = store->open.n > 0;
  if (store->undo.n > store->undo.committed) store->durability.is_requested = true;
  kw_write_commit(store);
  if (store->database == NULL) kw_write_forget_undo(store, store->undo.committed);
  if (has_changes) kw_store_set_applied(store, store->open.main);
}

void kw_store_rollback(kw_store *store) {
  if (kw_store_is_busy(store)) return;
  kw_write_rollback(store);
}

/* }====== */
