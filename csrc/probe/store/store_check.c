/* SPDX-License-Identifier: MIT */
#include "probe/checks.h"
#include "probe/disk.h"
#include "store/alarm.h"
#include "store/state.h"

/* True if a lease is one of the revoked leases of its id. */
static bool has_revoked(const kw_leases *leases, const kw_lease *lease) {
  const kw_lease *newer = lease->newer;
  if (newer == NULL) return kw_leases_find_revoked(leases, lease->id) == lease;
  return newer->older == lease && newer->id == lease->id;
}

/* The undo list counts the steps of the open write. Every lease that a step has revoked is known, and every revoked
 * lease waits for the end of its step. */
static const char *check_undo(const kw_store *store) {
  const kw_undo_list *undo = &store->undo;
  const kw_link *waiting = &store->leases.waiting;
  size_t ids = 0, open = 0;
  for (size_t i = 0; i < undo->n; i += kw_undo_words(undo->words[i])) {
    kw_undo step = kw_undo_read(undo->words + i);
    open += i >= undo->committed;
    if (step.kind != KW_UNDO_REVOKE) continue;
    if (!has_revoked(&store->leases, step.lease)) return "a revoked lease is not found";
  }
  for (const kw_link *link = waiting->next; link != waiting; link = link->next) {
    const kw_lease *lease = KW_CONTAINER_OF(link, kw_lease, waiting);
    ids += lease->is_revoked && lease->newer == NULL;
  }
  if (open != undo->open) return "the steps of the open write are counted wrongly";
  return ids == store->leases.revoked.n ? NULL : "a revoked lease too many";
}

/* Every change of every key has its record, every record its change, and every lease its keys. */
const char *kw_store_check(const kw_store *store) {
  kw_index_cursor cursor = kw_index_seek(&store->index, kw_slice_of("", 0));
  const kw_key_history *history;
  size_t changes = 0, leased = 0, attached = 0, at = 0;
  const char *fault = kw_index_check(&store->index);
  if (fault == NULL) fault = kw_log_check(store->log);
  if (fault != NULL) return fault;
  if (store->compact_is_stuck && !kw_alarm_is_corrupt(store))
    return "a compaction is stuck without alarm";
  while ((history = kw_index_next(&cursor)) != NULL) {
    const kw_change *all = kw_key_history_changes(history);
    for (uint32_t i = history->first; i < history->n; i++, changes++) {
      if (kw_store_record(store, &all[i]) == NULL) return "a change without record";
      if (i > history->first && all[i - 1].main > all[i].main) return "changes out of order";
    }
    if (kw_key_history_last(history)->tombstone == kw_key_history_is_live(history))
      return "a wrong state";
    if (history->state.lease == 0) continue;
    const kw_lease *lease = kw_leases_find(&store->leases, history->state.lease);
    if (lease == NULL) return "a key of a lease that is not there";
    if (kw_map_get(&lease->keys, (uint64_t)(uintptr_t)history) != history)
      return "a lease lacks a key";
    leased++;
  }
  const kw_lease *lease;
  while ((lease = kw_map_next(&store->leases.by_id, &at)) != NULL) attached += lease->keys.n;
  if (leased != attached) return "a lease has a key too many";
  if (attached != store->leases.n_keys) return "the number of keys of leases is wrong";
  if (changes != kw_log_count(store->log)) return "a record without change";
  if ((fault = kw_retention_check(store)) != NULL) return fault;
  if ((fault = check_undo(store)) != NULL) return fault;
  if (store->committer != NULL && (fault = kw_committer_check(store->committer)) != NULL)
    return fault;
  bool is_open = store->undo.n > store->undo.committed;
  return is_open && !kw_store_is_busy(store) ? "an open write" : NULL;
}
