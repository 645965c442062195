/* SPDX-License-Identifier: MIT */
#include "watch/hub.h"

#include "base/mem.h"
#include "watch/state.h"

#ifdef KW_PROBE
#define WALK_VISITS 1024 /* so that tests meet revisions that are longer than a step */
#else
#define WALK_VISITS KW_WORK_TURN
#endif
#define PLACE_BYTES 128 /* estimate of what a watcher takes in watch groups and maps */

kw_hub_options kw_hub_defaults(void) {
  return (kw_hub_options){.walk_revisions = 1000,
                          .walk_bytes = 1 << 20,
                          .walk_watchers = 512,
                          .walk_visits = WALK_VISITS,
                          .progress_ms = KW_DEFAULT_PROGRESS_MS};
}

kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options) {
  kw_hub *hub = kw_alloc(sizeof *hub);
  if (hub == NULL) return NULL;
  *hub = (kw_hub){.store = store,
                  .options = *options,
                  .walk = {.store = store},
                  .catching_up = {.store = store, .counts_previous = true}};
  hub->synced = kw_watch_group_new(options->seed);
  hub->chosen_group = kw_watch_group_new(options->seed);
  if (hub->synced != NULL && hub->chosen_group != NULL) {
    kw_delivery_begin(hub);
    return hub;
  }
  if (hub->synced != NULL) kw_watch_group_free(hub->synced);
  if (hub->chosen_group != NULL) kw_watch_group_free(hub->chosen_group);
  kw_free(hub);
  return NULL;
}

void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids) {
  *outlet = (kw_outlet){.hub = hub, .ready = ready, .max_bytes = max_bytes, .with_ids = with_ids};
  outlet->next = hub->outlets;
  outlet->prev = &hub->outlets;
  if (hub->outlets != NULL) hub->outlets->prev = &outlet->next;
  hub->outlets = outlet;
}

void kw_outlet_close(kw_outlet *outlet) {
  kw_hub *hub = outlet->hub;
  if (hub == NULL) return;
  kw_outlet_drop_items(outlet); /* first, so that no watcher's items have to be looked for */
  while (outlet->only != NULL || outlet->ids.n > 0) { /* a removal may hide an id from one round */
    kw_watcher *watcher;
    size_t at = 0;
    while ((watcher = kw_outlet_next_watcher(outlet, &at)) != NULL) kw_hub_cancel(hub, watcher);
  }
  kw_outlet_disarm(outlet);
  *outlet->prev = outlet->next;
  if (outlet->next != NULL) outlet->next->prev = outlet->prev;
  kw_map_drop(&outlet->ids);
  outlet->hub = NULL;
}

void kw_hub_free(kw_hub *hub) {
  while (hub->outlets != NULL) kw_outlet_close(hub->outlets);
  kw_store_set_hook(hub->store, (kw_store_hook){0});
  kw_watch_group_free(hub->synced);
  kw_watch_group_free(hub->chosen_group);
  kw_walk_drop(&hub->walk);
  kw_walk_drop(&hub->catching_up);
  kw_map_drop(&hub->progress);
  kw_free(hub->chosen);
  kw_free(hub);
}

kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id) {
  return outlet->with_ids ? kw_map_get(&outlet->ids, (uint64_t)id) : outlet->only;
}

/* Checks that the id that was asked for is free; for id 0 chooses one that was never chosen before. */
static int take_id(kw_outlet *outlet, int64_t *id) {
  if (*id != 0) return kw_outlet_find(outlet, *id) == NULL ? KW_OK : KW_ERR_DUPLICATE_WATCH_ID;
  while (kw_outlet_find(outlet, outlet->next_id) != NULL) outlet->next_id++;
  *id = outlet->next_id++;
  return KW_OK;
}

/* Returns the charge of a watcher: its own memory, and what watch group and maps take. */
static size_t watcher_size(const kw_range *range) {
  return sizeof(kw_watcher) + 2 * (range->key.len + range->end.len) + PLACE_BYTES;
}

/* True if a new watcher begins where the events of the store are not all known. (One that begins before that, and gets
 * there, was told the difference.) */
static bool is_in_gap(const kw_hub *hub, const kw_watcher *watcher) {
  int64_t next = watcher->next_rev;
  return next >= kw_store_first_event(hub->store) &&
         kw_store_first_event_from(hub->store, next) > next;
}

/* Puts a new watcher into its first place. Returns false if memory is short. */
static bool begin(kw_hub *hub, kw_watcher *watcher) {
  int64_t now = kw_store_revision(hub->store);
  if (watcher->next_rev > 0 && watcher->next_rev <= now) {
    kw_watcher_enter_lagging(hub, watcher);
    return true;
  }
  watcher->begins_later = watcher->next_rev > now;
  if (watcher->next_rev == 0) watcher->next_rev = now + 1;
  watcher->state = KW_WATCHER_SYNCED;
  return kw_watch_group_add(hub->synced, watcher);
}

static bool reserve(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec) {
  return (!outlet->with_ids || kw_map_reserve(&outlet->ids)) &&
         (!spec->progress || kw_map_reserve(&hub->progress));
}

/* Adds a watcher to its outlet and to the round of progress; there is room for it. */
static void enroll(kw_hub *hub, kw_outlet *outlet, kw_watcher *watcher) {
  watcher->outlet = outlet;
  if (outlet->with_ids) {
    kw_map_put(&outlet->ids, (uint64_t)watcher->id, watcher);
  } else {
    outlet->only = watcher;
  }
  if (watcher->state == KW_WATCHER_LAGGING) {
    kw_outlet_forget_progress_all(outlet); /* not true of this watcher */
    kw_watcher_unblock(outlet);
  }
  if (watcher->progress && hub->progress.n == 0) hub->progress_due = INT64_MIN;
  if (watcher->progress) kw_map_put(&hub->progress, (uint64_t)(uintptr_t)watcher, watcher);
  hub->n++;
}

int kw_hub_watch(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec, kw_watcher **result) {
  kw_slice key = spec->range.key.len == 0 ? kw_slice_of("\0", 1) : spec->range.key;
  kw_range range = {.key = key, .end = spec->range.end};
  int64_t id = spec->id;
  if (spec->start_revision < 0) return KW_ERR_COMPACTED;
  if (!kw_range_contains(&range, key)) return KW_ERR_EMPTY_RANGE;
  if (outlet->account != NULL && !kw_account_ask(outlet->account, watcher_size(&range)))
    return KW_ERR_TOO_MANY_REQUESTS;
  if (!reserve(hub, outlet, spec)) return KW_ERR_NO_MEMORY;
  int rc = outlet->with_ids ? take_id(outlet, &id) : KW_OK;
  if (rc != KW_OK) return rc;
  kw_watcher *watcher = kw_watcher_new(spec, &range);
  if (watcher == NULL || !begin(hub, watcher)) {
    kw_free(watcher);
    return KW_ERR_NO_MEMORY;
  }
  watcher->id = id;
  enroll(hub, outlet, watcher);
  kw_account_charge(outlet->account, watcher_size(&range));
  if (watcher->state == KW_WATCHER_LAGGING && is_in_gap(hub, watcher))
    kw_watcher_fail_compacted(hub, watcher);
  *result = watcher;
  return KW_OK;
}

void kw_hub_cancel(kw_hub *hub, kw_watcher *watcher) {
  kw_outlet *outlet = watcher->outlet;
  kw_watcher_leave(hub, watcher);
  kw_outlet_forget(outlet, watcher);
  kw_watcher_unblock(outlet);
  if (outlet->with_ids) {
    kw_map_remove(&outlet->ids, (uint64_t)watcher->id);
    kw_map_shrink(&outlet->ids, 0);
  } else {
    outlet->only = NULL;
  }
  if (watcher->progress) {
    kw_map_remove(&hub->progress, (uint64_t)(uintptr_t)watcher);
    kw_map_shrink(&hub->progress, 0);
  }
  kw_range range = kw_watcher_range(watcher);
  kw_account_credit(outlet->account, watcher_size(&range));
  kw_free(watcher);
  hub->n--;
}

bool kw_outlet_take(kw_outlet *outlet, kw_item *item) {
  if (!kw_outlet_pop(outlet, item)) return false;
  if (outlet->blocked.first != NULL) kw_watcher_unblock(outlet);
  return true;
}

/* True if a watcher waits for the next step. */
static bool is_due(const kw_hub *hub) {
  return hub->is_behind || hub->lagging.first != NULL || hub->n_chosen > 0;
}

int64_t kw_hub_deadline(const kw_hub *hub) {
  if (is_due(hub)) return INT64_MIN;
  int64_t deadline = kw_store_deadline(hub->store);
  if (hub->progress.n > 0 && hub->progress_due < deadline) deadline = hub->progress_due;
  return deadline;
}

bool kw_hub_step(kw_hub *hub, int64_t now) {
  bool more = kw_store_step(hub->store, now);
  if (hub->is_behind) kw_delivery_step(hub);
  if (hub->lagging.first != NULL || hub->n_chosen > 0) kw_catch_up_step(hub);
  if (hub->progress.n > 0 && hub->progress_due <= now) kw_progress_step(hub, now);
  bool is_progress_due = hub->progress.n > 0 && hub->progress_due <= now;
  return more || is_due(hub) || is_progress_due;
}

#ifdef KW_PROBE

void kw_hub_set_walk_visits(kw_hub *hub, int64_t visits) {
  hub->options.walk_visits = visits;
}

/* Checks that every watcher is in the place that its state says, and in no other. */
const char *kw_hub_check(const kw_hub *hub) {
  size_t n = 0, synced = 0, lagging = 0, chosen = 0;
  const char *fault = kw_watch_group_check(hub->synced);
  if (fault != NULL) return fault;
  const kw_watcher *w;
  for (w = hub->lagging.first; w != NULL; w = w->next) lagging++;
  for (const kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    size_t at = 0, queued = 0, blocked = 0;
    for (w = outlet->blocked.first; w != NULL; w = w->next) blocked++;
    for (; (w = kw_outlet_next_watcher(outlet, &at)) != NULL; n++) {
      bool is_chosen = w->state == KW_WATCHER_LAGGING && w->watched != NULL;
      if ((w->state == KW_WATCHER_SYNCED || is_chosen) != (w->watched != NULL))
        return "a watcher in the wrong place";
      synced += w->state == KW_WATCHER_SYNCED;
      lagging -= w->state == KW_WATCHER_LAGGING && !is_chosen;
      chosen += is_chosen;
      blocked -= w->state == KW_WATCHER_BLOCKED;
      queued += w->queued;
    }
    if (blocked != 0) return "the blocked watchers of an outlet are wrong";
    if (queued + outlet->progress_all != outlet->n) return "the items of an outlet are wrong";
    if ((fault = kw_outlet_check(outlet)) != NULL) return fault;
    if (outlet->blocked.first != NULL && outlet->n == 0) /* else its reader takes an item */
      return "a watcher is blocked, and nothing will let it go on";
  }
  if (lagging != 0) return "the lagging watchers are wrong";
  if (synced != kw_watch_group_count(hub->synced)) return "the synced watchers are wrong";
  if (chosen != hub->n_chosen || chosen != kw_watch_group_count(hub->chosen_group))
    return "the chosen watchers are wrong";
  if (chosen == 0 && hub->catching_up.n > 0) return "a walk without watchers";
  if (chosen > 0 && hub->walk_next.sub == 0) return "a step has ended between two revisions";
  if (hub->walk.n > 0) return "delivery has left a walk";
  if (hub->is_behind && hub->tell_next.main > kw_store_revision(hub->store))
    return "the hub is behind, and all is told";
  return n == hub->n ? NULL : "the number of watchers is wrong";
}

#endif
