/* SPDX-License-Identifier: MIT */
#include "watch/hub.c"

#include "probe/checks.h"

void kw_hub_set_walk_visits(kw_hub *hub, int64_t visits) {
  hub->options.walk_visits = visits;
  hub->walk.most_matched = (size_t)visits;
}

void kw_hub_set_long_bytes(kw_hub *hub, size_t bytes) {
  hub->walk.long_bytes = hub->catching_up.long_bytes = bytes;
}

/* How many watchers there are in each place. */
typedef struct census {
  size_t n, synced, lagging, chosen;
  kw_hub_metrics metrics;
} census;

/* Counts the watchers of an outlet, and checks that each is in the place that its state says, and in no other. */
static const char *check_outlet(const kw_outlet *outlet, int64_t rev, census *all) {
  const kw_watcher *w;
  size_t at = 0, queued = 0, blocked = 0, synced = all->synced;
  for (w = outlet->blocked.first; w != NULL; w = w->next) blocked++;
  for (; (w = kw_outlet_next_watcher(outlet, &at)) != NULL; all->n++) {
    bool is_chosen = w->state == KW_WATCHER_LAGGING && w->watched != NULL;
    if ((w->state == KW_WATCHER_SYNCED || is_chosen) != (w->watched != NULL))
      return "a watcher in the wrong place";
    if (kw_watcher_is_early(w, rev + 1) && kw_link_is_alone(&w->early))
      return "an early watcher is not listed";
    all->synced += w->state == KW_WATCHER_SYNCED;
    all->lagging += w->state == KW_WATCHER_LAGGING && !is_chosen;
    all->chosen += is_chosen;
    blocked -= w->state == KW_WATCHER_BLOCKED;
    queued += w->queued;
    all->metrics.watchers[w->state]++;
  }
  kw_outlet_add_totals(outlet, &all->metrics.outlets);
  if (blocked != 0) return "the blocked watchers of an outlet are wrong";
  if (outlet->n_synced != all->synced - synced) return "the synced watchers of an outlet are wrong";
  if (queued + outlet->progress_all != outlet->n) return "the items of an outlet are wrong";
  return kw_outlet_check(outlet);
}

/* True if the metrics are those of all outlets. */
static bool is_counted(const kw_hub *hub, const kw_hub_metrics *counted) {
  const kw_outlet_totals *totals = &hub->metrics.outlets;
  size_t streams = 0;
  for (const kw_outlet *o = hub->outlets; o != NULL; o = o->next) streams += o->with_ids;
  return memcmp(hub->metrics.watchers, counted->watchers, sizeof counted->watchers) == 0 &&
         totals->bytes == counted->outlets.bytes &&
         totals->added - totals->removed == counted->outlets.added &&
         hub->metrics.streams == streams;
}

const char *kw_hub_check(const kw_hub *hub) {
  census all = {0};
  size_t lagging = 0;
  int64_t rev = kw_store_revision(hub->store);
  const char *fault = kw_watch_group_check(hub->synced);
  for (const kw_watcher *w = hub->lagging.first; w != NULL; w = w->next) lagging++;
  for (const kw_outlet *o = hub->abandoned; fault == NULL && o != NULL; o = o->next)
    fault = o->n > 0 ? "an abandoned outlet has items" : check_outlet(o, rev, &all);
  for (const kw_outlet *o = hub->outlets; fault == NULL && o != NULL; o = o->next) {
    fault = check_outlet(o, rev, &all);
    if (fault == NULL && o->blocked.first != NULL && o->n == 0) /* else its reader takes an item */
      fault = "a watcher is blocked, and nothing will resume it";
  }
  if (fault != NULL) return fault;
  if (lagging != all.lagging) return "the lagging watchers are wrong";
  if (all.synced != kw_watch_group_count(hub->synced)) return "the synced watchers are wrong";
  if (all.chosen != hub->n_chosen || all.chosen != kw_watch_group_count(hub->chosen_group))
    return "the chosen watchers are wrong";
  if (all.chosen == 0 && hub->catching_up.n > 0) return "a walk without watchers";
  if (all.chosen > 0 && hub->walk_next.sub == 0) return "a step has ended between two revisions";
  if (hub->walk.n > 0 && !hub->is_behind) return "delivery has left a walk";
  if (hub->next_watcher != NULL && hub->next_watcher->watched != kw_walk_first(&hub->walk))
    return "the next watcher is of another range";
  if (hub->is_behind && hub->deliver_next.main > kw_store_revision(hub->store))
    return "the hub is behind, and all is delivered";
  if (!is_counted(hub, &all.metrics)) return "the metrics of the hub are wrong";
  return all.n == hub->n ? NULL : "the number of watchers is wrong";
}
