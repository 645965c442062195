/* SPDX-License-Identifier: MIT
 *
 * delivery: each revision reaches the synced watchers inside the commit, as it becomes visible.
 *
 * If a commit group has more revisions, or a revision more watchers, than one step may serve, the hub is behind: later
 * steps serve the rest, in order of revision. If a revision has more events, or an event more watched ranges, than one
 * step may look at, the watchers of the ranges found so far lag, and the next step continues inside of the revision.
 * The watchers that stay synced have missed nothing: no event up to there is in their ranges.
 *
 * A watcher that cannot be served becomes blocked or lagging, and catches up later. Nothing here can fail the commit.
 */
#include "watch/state.h"

bool kw_deliver(kw_walk *walk, kw_watcher *watcher) {
  bool is_open = kw_outlet_is_open(watcher->outlet);
  kw_delivered outcome = is_open ? kw_walk_deliver(walk, watcher) : KW_NO_EVENTS;
  watcher->was_refused =
      outcome == KW_REFUSED || outcome == KW_NO_MEMORY || outcome == KW_UNREADABLE;
  watcher->is_unreadable = outcome == KW_UNREADABLE;
  if (outcome == KW_DELIVERED) watcher->got_events = true;
  if (watcher->outlet->is_armed && watcher->outlet->n > 0) kw_ready_add(watcher->outlet);
  return !watcher->was_refused;
}

/* Serves the watchers of the walk's first watched range, from hub->next_watcher on. Returns false if the work runs out
 * before the last of them. */
static bool deliver_range(kw_hub *hub, kw_work *work) {
  kw_watched *watched = kw_walk_first(&hub->walk);
  if (hub->next_watcher == NULL) hub->next_watcher = watched->first;
  while (hub->next_watcher != NULL) {
    if (!kw_work_is_left(work)) return false;
    kw_work_spend(work, 0);
    kw_watcher *watcher = hub->next_watcher;
    if (!kw_deliver(&hub->walk, watcher)) {
      kw_watcher_leave(hub, watcher);
      kw_watcher_enter_refused(hub, watcher);
    } else if ((hub->next_watcher = watcher->next) == NULL) {
      kw_walk_done(&hub->walk);
    }
  }
  return true;
}

/* Serves the watchers of the walk. Returns false if the work runs out before the last of them. */
static bool deliver_walk(kw_hub *hub, kw_work *work) {
  while (kw_walk_first(&hub->walk) != NULL) {
    if (!deliver_range(hub, work)) return false;
  }
  return true;
}

/* Makes a synced watcher lagging, from revision `rev` on or later. */
static void lag(kw_hub *hub, kw_watcher *watcher, int64_t rev) {
  bool begins_later = kw_watcher_is_early(watcher, kw_store_revision(hub->store));
  kw_watcher_leave(hub, watcher);
  if (watcher->next_rev < rev) watcher->next_rev = rev;
  kw_watcher_enter_lagging(hub, watcher);
  watcher->begins_later = begins_later;
}

/* Makes the watchers of the walk lagging, none of which was served. Returns false if the work runs out before the last
 * of them. */
static bool lag_walk(kw_hub *hub, kw_work *work) {
  const kw_watched *watched;
  while ((watched = kw_walk_first(&hub->walk)) != NULL) {
    if (!kw_work_is_left(work)) return false;
    kw_work_spend(work, 0);
    lag(hub, watched->first, hub->deliver_next.main);
    hub->has_lagged = true;
  }
  return true;
}

/* Makes all synced watchers lagging, from revision `rev` on: the walk of that revision has failed. Watchers that begin
 * at a revision that is not visible yet stay synced. */
static void lag_all(kw_hub *hub, int64_t rev) {
  int64_t now = kw_store_revision(hub->store);
  kw_watcher *w;
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    for (size_t at = 0; (w = kw_outlet_next_watcher(outlet, &at)) != NULL;) {
      if (w->state == KW_WATCHER_SYNCED && w->next_rev <= now) lag(hub, w, rev);
    }
  }
}

bool kw_delivery_walk_revision(kw_hub *hub, kw_walk *walk, kw_watch_group *group,
                               kw_log_cursor *cursor, kw_log_entry *entry, bool *more,
                               kw_work *work) {
  int64_t rev = entry->rev.main;
  kw_work of_revision = {.left = hub->options.walk_visits};
  work->left -= of_revision.left;
  do {
    if (kw_store_read_failure(hub->store) != KW_OK || !kw_walk_add(walk, group, entry))
      return false;
    kw_work_spend(&of_revision, kw_log_looked_at(entry));
    of_revision.left -= (int64_t)(walk->lookups + walk->matched / 2);
    if (walk->is_partial) break;
    *more = kw_store_next(hub->store, cursor, entry);
  } while (*more && entry->rev.main == rev && kw_work_is_left(&of_revision));
  work->left += of_revision.left;
  return *more || kw_store_read_failure(hub->store) == KW_OK;
}

/* Gathers the events of one revision for the synced watchers. If these are too many for a step, is_inside is set: the
 * watchers of the gathered events have to lag. Returns false if memory is short or a record cannot be read. */
static bool gather(kw_hub *hub, kw_log_cursor *cursor, kw_log_entry *entry, bool *more,
                   kw_work *work) {
  hub->deliver_next = entry->rev;
  if (!kw_delivery_walk_revision(hub, &hub->walk, hub->synced, cursor, entry, more, work))
    return false;
  hub->is_inside = *more && entry->rev.main == hub->deliver_next.main;
  if (hub->is_inside) hub->deliver_next = entry->rev;
  return true;
}

/* Delivers the gathered events. Returns true if the next revision may follow in this step. If this revision made
 * watchers lag, they must be able to catch up first. */
static bool deliver(kw_hub *hub, kw_work *work) {
  bool is_done = hub->is_inside ? lag_walk(hub, work) : deliver_walk(hub, work);
  if (is_done) kw_walk_reset(&hub->walk);
  if (!is_done || hub->is_inside) return false;
  hub->deliver_next = (kw_revision){.main = hub->deliver_next.main + 1};
  hub->is_behind = hub->deliver_next.main <= kw_store_revision(hub->store);
  bool may_continue = !hub->has_lagged;
  hub->has_lagged = false;
  return may_continue;
}

/* Makes all watchers that have begun lagging. The others begin later, so the hub is not behind. */
static void give_up(kw_hub *hub) {
  kw_walk_reset(&hub->walk);
  lag_all(hub, hub->deliver_next.main);
  hub->is_behind = false;
}

void kw_delivery_step(kw_hub *hub) {
  kw_work work = {.left = hub->options.walk_visits};
  kw_log_entry entry;
  if (hub->walk.n > 0 && !deliver(hub, &work)) return;
  kw_log_cursor cursor = kw_store_seek(hub->store, hub->deliver_next);
  hub->is_behind = kw_watch_group_count(hub->synced) > 0;
  bool more = hub->is_behind && kw_store_next(hub->store, &cursor, &entry);
  if (hub->is_behind && !more && kw_store_read_failure(hub->store) != KW_OK) give_up(hub);
  while (more && kw_work_is_left(&work)) {
    if (!gather(hub, &cursor, &entry, &more, &work)) {
      give_up(hub);
      return;
    }
    if (!deliver(hub, &work)) return;
  }
  if (!more) hub->is_behind = false;
}

/* Fails the watchers of an outlet that were started inside of a gap before it had opened. */
static void fail_early(kw_hub *hub, kw_outlet *outlet, int64_t before) {
  kw_link *link = outlet->early.next;
  while (link != &outlet->early) {
    kw_watcher *watcher = KW_CONTAINER_OF(link, kw_watcher, early);
    link = link->next;
    if (kw_watcher_is_early(watcher, before) && kw_watcher_is_in_gap(hub, watcher))
      kw_watcher_fail_compacted(hub, watcher);
  }
}

/* If the store, a replica, has skipped revisions after `before`: a watcher that begins at one of them would not get the
 * events that have happened between its own revision and the end of the gap. */
static void fail_in_gap(kw_hub *hub, int64_t before) {
  if (kw_store_first_event_from(hub->store, before + 2) == before + 2) return;
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next)
    fail_early(hub, outlet, before);
}

/* Each revision is delivered as one batch. Watchers that are not served at once may have to lag later, and then need
 * the history. */
static void on_visible(int64_t before, void *ctx) {
  kw_hub *hub = ctx;
  fail_in_gap(hub, before);
  if (kw_watch_group_count(hub->synced) == 0) return;
  if (!hub->is_behind) {
    hub->deliver_next = (kw_revision){.main = before + 1};
    hub->has_lagged = false;
    hub->walk.compacted = kw_store_compact_revision(hub->store);
    kw_delivery_step(hub);
  }
  if (hub->is_behind) kw_store_want_history(hub->store);
}

/* A replica compacts as it receives events: with a step for each compaction, a hub that is behind keeps up with any
 * feed. */
static void on_compact(void *ctx) {
  kw_hub *hub = ctx;
  if (hub->is_behind) kw_delivery_step(hub);
}

/* Compaction waits for synced watchers: they are not slow, the hub is. */
static int64_t first_undelivered(void *ctx) {
  const kw_hub *hub = ctx;
  return hub->is_behind ? hub->deliver_next.main : INT64_MAX;
}

void kw_delivery_begin(kw_hub *hub) {
  kw_store_set_hook(hub->store, (kw_store_hook){on_visible, on_compact, first_undelivered, hub});
}
