/* SPDX-License-Identifier: MIT */
#include "watch/watcher.h"

#include "base/mem.h"
#include "watch/state.h"

kw_watcher *kw_watcher_new(const kw_watch_spec *spec, const kw_range *range) {
  if (range->key.len > UINT32_MAX || range->end.len > UINT32_MAX) return NULL;
  kw_watcher *watcher = kw_alloc(sizeof *watcher + range->key.len + range->end.len);
  if (watcher == NULL) return NULL;
  *watcher = (kw_watcher){.next_rev = spec->start_revision,
                          .no_put = spec->no_put,
                          .no_delete = spec->no_delete,
                          .prev_kv = spec->prev_kv,
                          .progress = spec->progress,
                          .fragment = spec->fragment,
                          .key_len = (uint32_t)range->key.len,
                          .end_len = (uint32_t)range->end.len};
  kw_link_init(&watcher->early);
  kw_range_copy(range, watcher->bytes);
  return watcher;
}

static void set_state(kw_hub *hub, kw_watcher *watcher, kw_watcher_state state) {
  hub->metrics.watchers[watcher->state]--;
  hub->metrics.watchers[state]++;
  watcher->state = (uint8_t)state;
}

/* {====== Places ====== */

/* Removes a synced watcher, which is about to leave the watch group, from the walk. It gets none of the walk's
 * events. */
static void leave_walk(kw_hub *hub, const kw_watcher *watcher) {
  bool is_last =
      watcher->next == NULL && (hub->next_watcher == watcher || watcher->watched->first == watcher);
  if (hub->next_watcher == watcher) hub->next_watcher = watcher->next;
  if (is_last) kw_walk_forget(&hub->walk, watcher->watched);
}

/* Takes a chosen watcher out of those that catch up. */
static void leave_chosen(kw_hub *hub, kw_watcher *watcher) {
  size_t i = 0;
  while (hub->chosen[i] != watcher) i++;
  hub->n_chosen--;
  memmove(&hub->chosen[i], &hub->chosen[i + 1], (hub->n_chosen - i) * sizeof hub->chosen[0]);
  bool is_last = watcher->watched->first == watcher && watcher->next == NULL;
  if (is_last) kw_walk_forget(&hub->catching_up, watcher->watched);
  kw_watch_group_remove(hub->chosen_group, watcher);
  if (hub->n_chosen == 0) kw_walk_reset(&hub->catching_up);
}

void kw_watcher_leave(kw_hub *hub, kw_watcher *watcher) {
  switch ((kw_watcher_state)watcher->state) {
    case KW_WATCHER_SYNCED:
      leave_walk(hub, watcher);
      kw_watch_group_remove(hub->synced, watcher);
      watcher->outlet->n_synced--;
      return;
    case KW_WATCHER_LAGGING:
      if (watcher->watched != NULL) {
        leave_chosen(hub, watcher);
      } else {
        kw_watcher_list_remove(&hub->lagging, watcher);
      }
      return;
    case KW_WATCHER_BLOCKED: kw_watcher_list_remove(&watcher->outlet->blocked, watcher); return;
    case KW_WATCHER_FAILED:
    case KW_WATCHER_STATES: return;
  }
}

void kw_watcher_enter_lagging(kw_hub *hub, kw_watcher *watcher) {
  set_state(hub, watcher, KW_WATCHER_LAGGING);
  watcher->begins_later = false; /* it has begun */
  kw_watcher_list_add(&hub->lagging, watcher);
  kw_store_want_history(hub->store);
}

static void enter_blocked(kw_watcher *watcher) {
  set_state(watcher->outlet->hub, watcher, KW_WATCHER_BLOCKED);
  watcher->begins_later = false;
  kw_watcher_list_add(&watcher->outlet->blocked, watcher);
  kw_store_want_history(watcher->outlet->hub->store);
}

void kw_watcher_enter_synced(kw_hub *hub, kw_watcher *watcher) {
  set_state(hub, watcher, KW_WATCHER_SYNCED);
  if (kw_watch_group_add(hub->synced, watcher)) {
    watcher->outlet->n_synced++;
  } else {
    kw_watcher_enter_lagging(hub, watcher);
  }
}

void kw_watcher_enter_refused(kw_hub *hub, kw_watcher *watcher) {
  if (watcher->outlet->n == 0) {
    kw_watcher_enter_lagging(hub, watcher);
  } else {
    enter_blocked(watcher);
  }
}

/* }====== */

/* True if two watchers seem to have been refused the same batch, whose bytes an outlet counts once for both. */
static bool is_alike(const kw_watcher *watcher, const kw_watcher *other) {
  return other != NULL && watcher->next_rev == other->next_rev && watcher->needs == other->needs;
}

void kw_watcher_unblock(kw_outlet *outlet) {
  const kw_watcher *last = NULL;
  size_t promised = 0;
  kw_watcher *watcher;
  while ((watcher = outlet->blocked.first) != NULL) {
    size_t others = is_alike(watcher, last) ? promised - watcher->needs : promised;
    if (!kw_outlet_has_room(outlet, watcher, others)) return;
    promised = others + watcher->needs;
    last = watcher;
    kw_watcher_leave(outlet->hub, watcher);
    kw_watcher_enter_lagging(outlet->hub, watcher);
  }
}

/* Fails a watcher with an item that says why. A closed outlet gets no item. Returns false if there is no memory for the
 * item: the watcher then lags. */
static bool fail_with(kw_hub *hub, kw_watcher *watcher, kw_item item) {
  kw_watcher_leave(hub, watcher);
  if (kw_outlet_is_open(watcher->outlet) && !kw_outlet_push(watcher->outlet, &item)) {
    kw_watcher_enter_lagging(hub, watcher);
    return false;
  }
  set_state(hub, watcher, KW_WATCHER_FAILED);
  kw_ready_add(watcher->outlet);
  return true;
}

bool kw_watcher_is_in_gap(const kw_hub *hub, const kw_watcher *watcher) {
  int64_t next = watcher->next_rev;
  return next >= kw_store_first_event(hub->store) &&
         kw_store_first_event_from(hub->store, next) > next;
}

/* If the watcher begins in a gap, the item's revision is the first one after the gap. next_rev 0 is before every event,
 * so the next step that looks at the watcher fails it again. */
void kw_watcher_fail_compacted(kw_hub *hub, kw_watcher *watcher) {
  int64_t next = kw_store_first_event_from(hub->store, watcher->next_rev);
  if (next == watcher->next_rev) next = kw_store_first_event(hub->store);
  kw_item item = {.kind = KW_ITEM_COMPACTED, .watcher = watcher, .revision = next};
  if (!fail_with(hub, watcher, item)) watcher->next_rev = 0;
}

void kw_watcher_fail_corrupt(kw_hub *hub, kw_watcher *watcher) {
  fail_with(hub, watcher, (kw_item){.kind = KW_ITEM_CORRUPT, .watcher = watcher});
}
