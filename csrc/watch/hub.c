/* SPDX-License-Identifier: MIT */
#include "watch/hub.h"

#include "base/mem.h"
#include "watch/state.h"

#define WALK_VISITS KW_LIMIT(KW_WORK_TURN, 1024)
#define CANCELS_PER_STEP 512 /* watchers of abandoned outlets */
#define PLACE_BYTES 128      /* estimated memory of a watcher in watch groups and maps */

kw_hub_options kw_hub_defaults(void) {
  return (kw_hub_options){.walk_revisions = 1000,
                          .walk_bytes = 1 << 20,
                          .long_bytes = 4 << 20,
                          .walk_watchers = 512,
                          .walk_visits = WALK_VISITS,
                          .progress_ms = KW_DEFAULT_PROGRESS_MS};
}

kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options) {
  kw_hub *hub = kw_alloc(sizeof *hub);
  if (hub == NULL) return NULL;
  *hub = (kw_hub){.store = store,
                  .options = *options,
                  .walk = {.store = store,
                           .long_bytes = options->long_bytes,
                           .most_matched = (size_t)options->walk_visits},
                  .catching_up = {.store = store,
                                  .long_bytes = options->long_bytes,
                                  .most_matched = SIZE_MAX,
                                  .counts_previous = true}};
  hub->synced = kw_watch_group_new(options->hash_seed);
  hub->chosen_group = kw_watch_group_new(options->hash_seed);
  if (hub->synced != NULL && hub->chosen_group != NULL) {
    kw_delivery_begin(hub);
    return hub;
  }
  if (hub->synced != NULL) kw_watch_group_free(hub->synced);
  if (hub->chosen_group != NULL) kw_watch_group_free(hub->chosen_group);
  kw_free(hub);
  return NULL;
}

static void link_outlet(kw_outlet **list, kw_outlet *outlet) {
  outlet->next = *list;
  outlet->prev = list;
  if (*list != NULL) (*list)->prev = &outlet->next;
  *list = outlet;
}

static void unlink_outlet(kw_outlet *outlet) {
  *outlet->prev = outlet->next;
  if (outlet->next != NULL) outlet->next->prev = outlet->prev;
}

void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids) {
  hub->metrics.streams += with_ids;
  *outlet = (kw_outlet){.hub = hub,
                        .totals = &hub->metrics.outlets,
                        .ready = ready,
                        .max_bytes = max_bytes,
                        .with_ids = with_ids,
                        .ids = {.seed = hub->options.hash_seed}};
  kw_link_init(&outlet->early);
  link_outlet(&hub->outlets, outlet);
}

/* Returns the charge of a watcher: its own memory, and its share of the watch group and the maps. */
static size_t watcher_size(const kw_range *range) {
  return sizeof(kw_watcher) + 2 * (range->key.len + range->end.len) + PLACE_BYTES;
}

/* Frees a watcher that is in no list and no group. */
static void free_watcher(kw_hub *hub, kw_watcher *watcher) {
  kw_range range = kw_watcher_range(watcher);
  size_t size = watcher_size(&range);
  if (watcher->progress) kw_map_remove(&hub->progress, (uint64_t)(uintptr_t)watcher);
  kw_link_remove(&watcher->early);
  kw_account_credit(watcher->outlet->account, size);
  watcher->outlet->watcher_bytes -= size;
  hub->metrics.watchers[watcher->state]--;
  hub->n--;
  kw_free(watcher);
}

/* Cancels at most `n` watchers of a closed outlet. Returns true if none is left. The map of ids keeps its size until it
 * is dropped. */
static bool cancel_some(kw_hub *hub, kw_outlet *outlet, size_t *at, size_t n) {
  for (size_t i = 0; i < n; i++) {
    kw_watcher *watcher = kw_outlet_next_watcher(outlet, at);
    if (watcher == NULL && outlet->only == NULL && outlet->ids.n == 0) return true;
    if (watcher == NULL) {
      *at = 0; /* a removal has moved an id to a position before *at */
      continue;
    }
    kw_watcher_leave(hub, watcher);
    outlet->only = NULL;
    if (outlet->with_ids) kw_map_remove(&outlet->ids, (uint64_t)watcher->id);
    free_watcher(hub, watcher);
  }
  return false;
}

/* Drops the items of an outlet, and removes it from its lists. Its watchers get no more items. */
static void shut(kw_outlet *outlet) {
  kw_outlet_drop_items(outlet);
  kw_outlet_disarm(outlet);
  unlink_outlet(outlet);
  outlet->hub->metrics.streams -= outlet->with_ids;
  outlet->hub = NULL;
}

void kw_outlet_close(kw_outlet *outlet) {
  kw_hub *hub = outlet->hub;
  size_t at = 0;
  if (hub == NULL) return;
  shut(outlet);
  cancel_some(hub, outlet, &at, SIZE_MAX);
  kw_map_drop(&outlet->ids);
  kw_map_shrink(&hub->progress, 0);
}

/* Cancels some watchers of the first abandoned outlet. */
static void step_abandoned(kw_hub *hub) {
  kw_outlet *outlet = hub->abandoned;
  if (!cancel_some(hub, outlet, &outlet->cancelled_to, CANCELS_PER_STEP)) return;
  unlink_outlet(outlet);
  kw_map_drop(&outlet->ids);
  kw_map_shrink(&hub->progress, 0);
  outlet->on_closed(outlet);
}

void kw_outlet_abandon(kw_outlet *outlet, kw_account *account) {
  kw_hub *hub = outlet->hub;
  shut(outlet);
  kw_account_credit(outlet->account, outlet->watcher_bytes);
  kw_account_charge(account, outlet->watcher_bytes);
  outlet->account = account;
  link_outlet(&hub->abandoned, outlet);
  step_abandoned(hub);
}

void kw_hub_forget_account(kw_hub *hub, const kw_account *account) {
  for (kw_outlet *outlet = hub->abandoned; outlet != NULL; outlet = outlet->next) {
    if (outlet->account == account) outlet->account = NULL;
  }
}

void kw_hub_free(kw_hub *hub) {
  while (hub->abandoned != NULL) step_abandoned(hub);
  while (hub->outlets != NULL) kw_outlet_close(hub->outlets);
  kw_store_set_hook(hub->store, (kw_store_hook){0});
  kw_watch_group_free(hub->synced);
  kw_watch_group_free(hub->chosen_group);
  kw_walk_reset(&hub->walk);
  kw_walk_drop(&hub->walk);
  kw_walk_drop(&hub->catching_up);
  kw_map_drop(&hub->progress);
  kw_free(hub->chosen);
  kw_free(hub);
}

kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id) {
  return outlet->with_ids ? kw_map_get(&outlet->ids, (uint64_t)id) : outlet->only;
}

/* Checks that the requested id is free; for id 0 chooses one that was never chosen before. */
static int take_id(kw_outlet *outlet, int64_t *id) {
  if (*id != 0) return kw_outlet_find(outlet, *id) == NULL ? KW_OK : KW_ERR_DUPLICATE_WATCH_ID;
  while (kw_outlet_find(outlet, outlet->next_id) != NULL) outlet->next_id++;
  *id = outlet->next_id++;
  return KW_OK;
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

/* Adds a watcher to its outlet and to the round of progress; the memory was reserved. */
static void enroll(kw_hub *hub, kw_outlet *outlet, kw_watcher *watcher) {
  watcher->outlet = outlet;
  hub->metrics.watchers[watcher->state]++;
  outlet->n_synced += watcher->state == KW_WATCHER_SYNCED;
  if (watcher->begins_later) kw_link_add(&outlet->early, &watcher->early);
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
  outlet->watcher_bytes += watcher_size(&range);
  if (watcher->state == KW_WATCHER_LAGGING && kw_watcher_is_in_gap(hub, watcher))
    kw_watcher_fail_compacted(hub, watcher);
  *result = watcher;
  return KW_OK;
}

kw_hub_metrics kw_hub_get_metrics(const kw_hub *hub) {
  return hub->metrics;
}

bool kw_hub_is_behind(const kw_hub *hub, const kw_watcher *watcher) {
  return watcher->state == KW_WATCHER_BLOCKED || watcher->state == KW_WATCHER_LAGGING ||
         (watcher->state == KW_WATCHER_SYNCED && hub->is_behind);
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
  free_watcher(hub, watcher);
  kw_map_shrink(&hub->progress, 0);
}

bool kw_outlet_take(kw_outlet *outlet, kw_item *item) {
  if (!kw_outlet_pop(outlet, item)) return false;
  if (outlet->blocked.first != NULL) kw_watcher_unblock(outlet);
  return true;
}

void kw_hub_deliver_again(kw_hub *hub, kw_watcher *watcher, int64_t rev) {
  kw_outlet *outlet = watcher->outlet;
  kw_outlet_forget_news(outlet, watcher);
  if (watcher->state != KW_WATCHER_FAILED) {
    kw_watcher_leave(hub, watcher);
    watcher->next_rev = rev;
    kw_watcher_enter_lagging(hub, watcher);
    kw_outlet_forget_progress_all(outlet); /* no longer true of this watcher */
  }
  kw_watcher_unblock(outlet);
}

void kw_hub_fail(kw_hub *hub, kw_watcher *watcher, int rc) {
  kw_outlet_forget_news(watcher->outlet, watcher);
  if (watcher->state != KW_WATCHER_FAILED && rc == KW_ERR_COMPACTED) {
    kw_watcher_fail_compacted(hub, watcher);
  } else if (watcher->state != KW_WATCHER_FAILED) {
    kw_watcher_fail_corrupt(hub, watcher);
  }
  if (watcher->state != KW_WATCHER_FAILED) watcher->next_rev = 0; /* memory is short: fails later */
  kw_watcher_unblock(watcher->outlet);
}

/* True if the next step has watchers to serve or to cancel. */
static bool is_due(const kw_hub *hub) {
  return hub->is_behind || hub->lagging.first != NULL || hub->n_chosen > 0 ||
         hub->abandoned != NULL;
}

int64_t kw_hub_deadline(const kw_hub *hub) {
  if (is_due(hub)) return INT64_MIN;
  int64_t deadline = kw_store_deadline(hub->store);
  if (hub->progress.n > 0 && hub->progress_due < deadline) deadline = hub->progress_due;
  return deadline;
}

bool kw_hub_step(kw_hub *hub, int64_t now) {
  bool more = kw_store_step(hub->store, now);
  if (hub->abandoned != NULL) step_abandoned(hub);
  if (hub->is_behind) kw_delivery_step(hub);
  bool must_wait = hub->is_behind && hub->has_lagged;
  if (!must_wait && (hub->lagging.first != NULL || hub->n_chosen > 0)) kw_catch_up_step(hub);
  if (hub->progress.n > 0 && hub->progress_due <= now) kw_progress_step(hub, now);
  bool is_progress_due = hub->progress.n > 0 && hub->progress_due <= now;
  return more || is_due(hub) || is_progress_due;
}
