/* SPDX-License-Identifier: MIT
 *
 * catch_up: the lagging watchers are told what they have missed, in bounded steps.
 *
 * A step takes the first lagging watcher, and the others that are within walk_revisions after it. It walks a bounded
 * part of the log once for all of them, tells each, and makes each of them synced, blocked, lagging or failed.
 */
#include "base/mem.h"
#include "watch/state.h"

#define WALK_MATCHES 16384 /* limit of walk.matches in a step; the last revision may exceed it */

/* Moves a lagging watcher to the watchers of this step. Returns false if memory is short: the watcher lags on, behind
 * the others. */
static bool choose(kw_hub *hub, kw_watcher *watcher) {
  kw_watcher_list_remove(&hub->lagging, watcher);
  if (kw_watch_group_add(hub->chosen_group, watcher)) {
    hub->chosen[hub->n_chosen++] = watcher;
    return true;
  }
  kw_watcher_enter_lagging(hub, watcher);
  return false;
}

/* Chooses the first lagging watcher and those near it; fails those whose history is gone. Looks at walk_watchers of
 * them at most. Returns the first watcher's next_rev, or INT64_MAX if none was found. */
static int64_t choose_near(kw_hub *hub) {
  int64_t from = INT64_MAX, first_event = kw_store_first_event(hub->store);
  kw_watcher *next, *watcher = hub->lagging.first;
  for (size_t i = 0; i < hub->options.walk_watchers && watcher != NULL; i++, watcher = next) {
    next = watcher->next;
    if (watcher->next_rev < first_event) {
      kw_watcher_fail_compacted(hub, watcher);
      continue;
    }
    if (from == INT64_MAX) from = watcher->next_rev;
    int64_t ahead = watcher->next_rev - from;
    if (ahead < 0 || ahead >= (int64_t)hub->options.walk_revisions) continue;
    if (!choose(hub, watcher)) break;
  }
  return from;
}

static bool is_long_enough(const kw_hub *hub, size_t revisions) {
  return revisions >= hub->options.walk_revisions || hub->walk.matches >= WALK_MATCHES ||
         hub->walk.most_bytes >= hub->options.walk_bytes;
}

/* Walks whole revisions from `from` on. Returns the last revision that was covered. Returns 0 if memory is short or a
 * record cannot be read: *reached is then a revision that is not after that record's. */
static int64_t walk_from(kw_hub *hub, int64_t from, int64_t *reached) {
  kw_log_cursor cursor = kw_store_seek(hub->store, from);
  kw_log_entry entry;
  bool more = kw_store_next(hub->store, &cursor, &entry);
  for (size_t revisions = 0; more; revisions++) {
    if (is_long_enough(hub, revisions)) return entry.rev.main - 1;
    if (!kw_delivery_walk_revision(hub, hub->chosen_group, &cursor, &entry, &more)) break;
  }
  if (!more && kw_store_read_failure(hub->store) == KW_OK) return kw_store_revision(hub->store);
  *reached = cursor.next.main > from ? cursor.next.main : from;
  return 0;
}

/* Gives a chosen watcher its state after the walk. `covered` is the last revision that it has been told, or 0. */
static void place(kw_hub *hub, kw_watcher *watcher, int64_t covered) {
  kw_watch_group_remove(hub->chosen_group, watcher);
  if (watcher->is_unreadable) {
    kw_watcher_enter_lagging(hub, watcher);
    kw_watcher_fail_corrupt(hub, watcher);
    return;
  }
  if (watcher->was_refused) {
    kw_watcher_enter_refused(hub, watcher);
    return;
  }
  if (watcher->next_rev <= covered) watcher->next_rev = covered + 1;
  if (watcher->next_rev > kw_store_revision(hub->store)) {
    kw_watcher_enter_synced(hub, watcher);
  } else {
    kw_watcher_enter_lagging(hub, watcher);
  }
}

/* Tells the chosen watchers what one walk has found. If the walk met a damaged record, the watchers that need it fail;
 * the others begin after the record, and lag on until a later walk. */
static void tell_chosen(kw_hub *hub, int64_t from) {
  int64_t reached = from;
  int64_t covered = walk_from(hub, from, &reached);
  bool is_corrupt = covered == 0 && kw_store_read_failure(hub->store) == KW_ERR_CORRUPT;
  for (size_t i = 0; i < hub->n_chosen; i++) {
    hub->chosen[i]->was_refused = false;
    hub->chosen[i]->is_unreadable = is_corrupt && hub->chosen[i]->next_rev <= reached;
    if (covered > 0) kw_delivery_tell(hub, hub->chosen[i]);
  }
  kw_walk_reset(&hub->walk);
  for (size_t i = 0; i < hub->n_chosen; i++) place(hub, hub->chosen[i], covered);
}

void kw_catch_up_step(kw_hub *hub) {
  if (hub->chosen == NULL) {
    hub->chosen = kw_alloc(hub->options.walk_watchers * sizeof *hub->chosen);
    if (hub->chosen == NULL) return;
  }
  hub->n_chosen = 0;
  int64_t from = choose_near(hub);
  if (hub->n_chosen > 0) tell_chosen(hub, from);
}
