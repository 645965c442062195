/* SPDX-License-Identifier: MIT
 *
 * catch_up: delivers to lagging watchers the events that they have missed, in bounded steps.
 *
 * A step takes the first lagging watcher, and the others that are within walk_revisions after it. It walks a bounded
 * part of the log once for all of them, delivers to each, and makes each of them synced, blocked, lagging or failed. A
 * step whose work ends inside of a revision leaves the walk to the next step.
 */
#include "base/mem.h"
#include "watch/state.h"

#define UNFINISHED (-1)
#define WALK_MATCHES 16384 /* limit of walk.matches in a step; the last revision may exceed it */

/* Moves a lagging watcher to the watchers of this step. Returns false if memory is short: the watcher then moves to the
 * end of the lagging ones. */
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

static bool is_long_enough(const kw_hub *hub) {
  return hub->walked >= hub->options.walk_revisions || hub->catching_up.matches >= WALK_MATCHES ||
         hub->catching_up.most_bytes >= hub->options.walk_bytes;
}

/* Continues the walk, as far as one step may. Returns the last revision that was covered, or UNFINISHED if the step has
 * ended inside of a revision. Returns 0 if memory is short or a record cannot be read: *reached is then the revision
 * of that record or an earlier one. */
static int64_t walk_on(kw_hub *hub, int64_t *reached) {
  kw_work work = {.left = hub->options.walk_visits};
  kw_log_cursor cursor = kw_store_seek(hub->store, hub->walk_next);
  kw_log_entry entry;
  *reached = hub->walk_next.main;
  bool more = kw_store_next(hub->store, &cursor, &entry);
  bool is_inside = hub->walk_next.sub > 0 && more && entry.rev.main == hub->walk_next.main;
  while (more) {
    if (!is_inside && (is_long_enough(hub) || !kw_work_is_left(&work))) return entry.rev.main - 1;
    int64_t rev = entry.rev.main;
    *reached = rev;
    if (!kw_delivery_walk_revision(hub, &hub->catching_up, hub->chosen_group, &cursor, &entry,
                                   &more, &work))
      break;
    is_inside = more && entry.rev.main == rev;
    if (is_inside) {
      hub->walk_next = entry.rev;
      return UNFINISHED;
    }
    hub->walked++;
  }
  if (!more && kw_store_read_failure(hub->store) == KW_OK) return kw_store_revision(hub->store);
  if (cursor.next.main > *reached) *reached = cursor.next.main;
  return 0;
}

/* Gives a chosen watcher its state after the walk. `covered` is the last revision that was delivered to it, or 0. */
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

/* Ends the walk: every chosen watcher leaves for its next place. */
static void end_walk(kw_hub *hub, int64_t covered) {
  kw_walk_reset(&hub->catching_up);
  size_t n = hub->n_chosen;
  hub->n_chosen = 0;
  for (size_t i = 0; i < n; i++) place(hub, hub->chosen[i], covered);
}

/* Delivers the events of one walk to the chosen watchers. If the walk met a damaged record, whose key is unknown, the
 * watchers that begin at *reached or before fail; the others still lag, until a later walk. */
static void deliver_chosen(kw_hub *hub) {
  int64_t reached;
  int64_t covered = walk_on(hub, &reached);
  if (covered == UNFINISHED) return;
  bool is_corrupt = covered == 0 && kw_store_read_failure(hub->store) == KW_ERR_CORRUPT;
  for (size_t i = 0; i < hub->n_chosen; i++) {
    hub->chosen[i]->was_refused = false;
    hub->chosen[i]->is_unreadable = is_corrupt && hub->chosen[i]->next_rev <= reached;
    if (covered > 0) kw_deliver(&hub->catching_up, hub->chosen[i]);
  }
  end_walk(hub, covered);
}

/* True if the history from the start of the unfinished walk on is gone. */
static bool is_compacted(const kw_hub *hub) {
  return hub->n_chosen > 0 && hub->walk_from < kw_store_first_event(hub->store);
}

/* Ends a walk without delivery: puts all chosen watchers back. */
static void give_up(kw_hub *hub) {
  for (size_t i = 0; i < hub->n_chosen; i++)
    hub->chosen[i]->was_refused = hub->chosen[i]->is_unreadable = false;
  end_walk(hub, 0);
}

void kw_catch_up_step(kw_hub *hub) {
  if (hub->chosen == NULL) {
    hub->chosen = kw_alloc(hub->options.walk_watchers * sizeof *hub->chosen);
    if (hub->chosen == NULL) return;
  }
  if (is_compacted(hub)) give_up(hub);
  hub->catching_up.compacted = kw_store_compact_revision(hub->store);
  if (hub->n_chosen == 0) {
    hub->walk_from = choose_near(hub);
    hub->walk_next = (kw_revision){.main = hub->walk_from};
    hub->walked = 0;
  }
  if (hub->n_chosen > 0) deliver_chosen(hub);
}
