/* SPDX-License-Identifier: MIT
 *
 * progress: reports to watchers up to which revision they have every event, on request and periodically.
 *
 * A progress item is queued after the events that it covers, so it is true when the reader takes it.
 */
#include "watch/state.h"

#define WATCHERS_PER_STEP 1024

/* True if all events up to the store's revision were queued for the watcher, and if the watcher begins at the next
 * revision at the latest: a client resumes at the revision after its last progress. */
static bool is_up_to_date(const kw_hub *hub, const kw_watcher *watcher) {
  if (watcher->state != KW_WATCHER_SYNCED || hub->is_behind) return false;
  if (!kw_outlet_is_open(watcher->outlet)) return false;
  return !kw_watcher_is_early(watcher, kw_store_revision(hub->store) + 1);
}

static bool offer(kw_hub *hub, kw_outlet *outlet, kw_watcher *watcher) {
  kw_item item = {
      .kind = KW_ITEM_PROGRESS, .watcher = watcher, .revision = kw_store_revision(hub->store)};
  if (!kw_outlet_offer(outlet, &item)) return false;
  kw_ready_add(outlet);
  return true;
}

bool kw_hub_progress(kw_hub *hub, kw_watcher *watcher) {
  return is_up_to_date(hub, watcher) && offer(hub, watcher->outlet, watcher);
}

/* True if a watcher of the outlet begins after the next revision. Removes from the list of early watchers those that do
 * not and that it finds first, so the work is constant per watcher. */
static bool has_early(const kw_hub *hub, kw_outlet *outlet) {
  while (!kw_link_is_alone(&outlet->early)) {
    kw_watcher *watcher = KW_CONTAINER_OF(outlet->early.next, kw_watcher, early);
    if (kw_watcher_is_early(watcher, kw_store_revision(hub->store) + 1)) return true;
    kw_link_remove(&watcher->early);
  }
  return false;
}

bool kw_hub_progress_all(kw_hub *hub, kw_outlet *outlet) {
  size_t n = outlet->with_ids ? outlet->ids.n : outlet->only != NULL;
  if (n == 0 || outlet->n_synced < n || hub->is_behind || has_early(hub, outlet)) return false;
  return offer(hub, outlet, NULL);
}

/* A watcher that got an event since the last round needs no progress in this one. */
void kw_progress_step(kw_hub *hub, int64_t now) {
  if (hub->is_behind) return; /* the round follows as soon as the hub has caught up */
  if (hub->progress_due == INT64_MIN) {
    hub->progress_due = now + hub->options.progress_ms;
    return;
  }
  for (size_t i = 0; i < WATCHERS_PER_STEP; i++) {
    kw_watcher *watcher = kw_map_next(&hub->progress, &hub->progress_at);
    if (watcher == NULL) {
      hub->progress_at = 0;
      hub->progress_due = now + hub->options.progress_ms;
      return;
    }
    if (!watcher->got_events) kw_hub_progress(hub, watcher);
    watcher->got_events = false;
  }
}
