/* SPDX-License-Identifier: MIT
 *
 * delivery: the synced watchers are told of each revision inside the commit, as it becomes visible.
 *
 * Where a commit group has more revisions than a turn may tell, the hub is behind: later steps tell the others, before
 * any that become visible meanwhile. A revision with more events than a turn may look at makes the synced watchers lag
 * if one of them wants what the turn has found.
 *
 * A watcher that cannot be told becomes blocked or lagging, and catches up later. Nothing here can fail the commit.
 */
#include "watch/state.h"

bool kw_delivery_tell(kw_walk *walk, kw_watcher *watcher) {
  bool is_open = kw_outlet_is_open(watcher->outlet);
  kw_told told = is_open ? kw_walk_tell(walk, watcher) : KW_UNTOLD;
  watcher->was_refused = told == KW_REFUSED || told == KW_NO_MEMORY || told == KW_UNREADABLE;
  watcher->is_unreadable = told == KW_UNREADABLE;
  if (told == KW_TOLD) watcher->was_told = true;
  if (watcher->outlet->is_armed && watcher->outlet->n > 0) kw_ready_add(watcher->outlet);
  return !watcher->was_refused;
}

/* Tells all watchers of the walk's first watched range. Those that were refused leave the watch group, after the walk
 * has let go of the range. */
static void tell_watched(kw_hub *hub, kw_work *work) {
  kw_watched *watched = kw_walk_first(&hub->walk);
  kw_watcher *first = watched->first, *next;
  size_t refused = 0;
  for (kw_watcher *watcher = first; watcher != NULL; watcher = watcher->next) {
    refused += !kw_delivery_tell(&hub->walk, watcher);
    kw_work_spend(work, 0);
  }
  kw_walk_done(&hub->walk);
  for (kw_watcher *watcher = first; refused > 0; watcher = next) {
    next = watcher->next;
    if (!watcher->was_refused) continue;
    refused--;
    kw_watcher_leave(hub, watcher);
    kw_watcher_enter_refused(hub, watcher);
  }
}

/* Makes all synced watchers lagging, from revision `rev` on: the walk of that revision has failed. Watchers that begin
 * at a revision that is not visible yet stay synced. */
static void lag_all(kw_hub *hub, int64_t rev) {
  int64_t now = kw_store_revision(hub->store);
  kw_watcher *w;
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    for (size_t at = 0; (w = kw_outlet_next_watcher(outlet, &at)) != NULL;) {
      if (w->state != KW_WATCHER_SYNCED || w->next_rev > now) continue;
      kw_watcher_leave(hub, w);
      if (w->next_rev < rev) w->next_rev = rev;
      kw_watcher_enter_lagging(hub, w);
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
    of_revision.left -= (int64_t)walk->lookups;
    *more = kw_store_next(hub->store, cursor, entry);
  } while (*more && entry->rev.main == rev && kw_work_is_left(&of_revision));
  work->left += of_revision.left;
  return *more || kw_store_read_failure(hub->store) == KW_OK;
}

typedef enum outcome { TOLD, STOPPED, FAILED } outcome;

/* Tells the synced watchers what one revision has for them. Returns STOPPED if the work has ended inside of the
 * revision, and nobody wants what it has had up to there; FAILED if the walk has failed, or is too long for a turn. */
static outcome tell_revision(kw_hub *hub, kw_log_cursor *cursor, kw_log_entry *entry, bool *more,
                             kw_work *work) {
  int64_t rev = entry->rev.main;
  bool ok = kw_delivery_walk_revision(hub, &hub->walk, hub->synced, cursor, entry, more, work);
  bool is_inside = ok && *more && entry->rev.main == rev;
  bool is_wanted = hub->walk.n > 0;
  while (ok && !is_inside && kw_walk_first(&hub->walk) != NULL) tell_watched(hub, work);
  kw_walk_reset(&hub->walk);
  if (is_inside && !is_wanted) return STOPPED;
  return ok && !is_inside ? TOLD : FAILED;
}

/* The watchers of an unfinished revision lag from there on; all others begin later. So nobody is behind. */
static void give_up(kw_hub *hub, int64_t rev) {
  lag_all(hub, rev);
  hub->is_behind = false;
}

void kw_delivery_step(kw_hub *hub) {
  kw_work work = {.left = hub->options.walk_visits};
  kw_log_cursor cursor = kw_store_seek_inside(hub->store, hub->tell_next);
  kw_log_entry entry;
  hub->is_behind = kw_watch_group_count(hub->synced) > 0;
  bool more = hub->is_behind && kw_store_next(hub->store, &cursor, &entry);
  if (hub->is_behind && !more && kw_store_read_failure(hub->store) != KW_OK)
    give_up(hub, hub->tell_next.main);
  while (more && kw_work_is_left(&work)) {
    int64_t rev = entry.rev.main;
    outcome told = tell_revision(hub, &cursor, &entry, &more, &work);
    hub->tell_next = told == STOPPED ? entry.rev : (kw_revision){.main = rev + 1};
    if (told == STOPPED) return;
    if (told == FAILED) {
      give_up(hub, rev);
      return;
    }
  }
  if (!more) hub->is_behind = false;
}

/* Each revision is told as one batch. */
static void on_visible(int64_t before, void *ctx) {
  kw_hub *hub = ctx;
  if (hub->is_behind || kw_watch_group_count(hub->synced) == 0) return;
  hub->tell_next = (kw_revision){.main = before + 1};
  hub->walk.compacted = kw_store_compact_revision(hub->store);
  kw_delivery_step(hub);
}

/* The compactions of a replica follow its events: with a step for each, a hub that is behind keeps up with any feed. */
static void on_compact(void *ctx) {
  kw_hub *hub = ctx;
  if (hub->is_behind) kw_delivery_step(hub);
}

/* Synced watchers have not been slow: they are told before their history goes. */
static int64_t untold(void *ctx) {
  const kw_hub *hub = ctx;
  return hub->is_behind ? hub->tell_next.main : INT64_MAX;
}

/* Fails every watcher that has begun: its history does not go on. A watcher that begins after the old and after the new
 * revision goes on. */
static void on_replace(int64_t before, void *ctx) {
  kw_hub *hub = ctx;
  int64_t now = kw_store_revision(hub->store);
  hub->is_behind = false;
  hub->era++;
  int64_t rev = before > now ? before : now;
  kw_watcher *w;
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    for (size_t at = 0; (w = kw_outlet_next_watcher(outlet, &at)) != NULL;) {
      if (w->state != KW_WATCHER_FAILED && !kw_watcher_is_early(w, rev))
        kw_watcher_fail_compacted(hub, w);
    }
  }
}

void kw_delivery_begin(kw_hub *hub) {
  kw_store_set_hook(hub->store, (kw_store_hook){on_visible, on_compact, untold, on_replace, hub});
}
