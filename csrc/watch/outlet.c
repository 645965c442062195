/* SPDX-License-Identifier: MIT */
#include "watch/outlet.h"

#include "base/mem.h"

#define FIRST_CAP 4

static kw_item *item_at(const kw_outlet *outlet, size_t i) {
  return &outlet->items[(outlet->first + i) & (outlet->cap - 1)];
}

/* Returns the charge of a new last item. Consecutive items of one batch are charged for it once. */
static size_t cost_of(const kw_outlet *outlet, const kw_item *item) {
  bool is_shared = outlet->n > 0 && item_at(outlet, outlet->n - 1)->batch == item->batch;
  bool is_free = item->batch == NULL || is_shared;
  return KW_OUTLET_ITEM_BYTES + (is_free ? 0 : item->batch->bytes);
}

/* Returns the memory of an item for its account, as if its batch were not shared, since it may not be. */
static size_t own_size(const kw_item *item) {
  const kw_batch *batch = item->batch;
  return KW_OUTLET_ITEM_BYTES +
         (batch == NULL ? 0 : sizeof *batch + batch->n * sizeof batch->events[0]);
}

/* Subtracts the charge of a removed item. If the next item has the same batch, that item is charged for the batch. */
static void discharge(kw_outlet *outlet, const kw_item *item, kw_item *next) {
  outlet->bytes -= KW_OUTLET_ITEM_BYTES;
  outlet->totals->removed += item->n;
  kw_account_credit(outlet->account, own_size(item));
  size_t rest = item->charge - KW_OUTLET_ITEM_BYTES;
  if (next != NULL && next->batch == item->batch) {
    next->charge += rest;
  } else {
    outlet->bytes -= rest;
    outlet->totals->bytes -= rest;
  }
}

/* Counts the events of an item that no reader takes. */
static void count_dropped(kw_outlet *outlet, const kw_item *item) {
  outlet->totals->dropped += item->n;
}

/* Doubles the ring buffer, and moves the oldest item to its start. */
static bool grow(kw_outlet *outlet) {
  size_t cap = outlet->cap == 0 ? FIRST_CAP : outlet->cap * 2;
  kw_item *items = kw_alloc(cap * sizeof *items);
  if (items == NULL) return false;
  for (size_t i = 0; i < outlet->n; i++) items[i] = *item_at(outlet, i);
  kw_free(outlet->items);
  outlet->items = items;
  outlet->cap = cap;
  outlet->first = 0;
  return true;
}

bool kw_outlet_push(kw_outlet *outlet, const kw_item *item) {
  if (outlet->n == outlet->cap && !grow(outlet)) return false;
  size_t charge = cost_of(outlet, item);
  kw_item *last = item_at(outlet, outlet->n++);
  *last = *item;
  last->charge = charge;
  outlet->bytes += charge;
  outlet->totals->bytes += charge - KW_OUTLET_ITEM_BYTES;
  outlet->totals->added += item->n;
  kw_account_charge(outlet->account, own_size(item));
  if (item->watcher != NULL) {
    item->watcher->queued++;
  } else {
    outlet->progress_all++;
  }
  return true;
}

/* Sets how much space in the outlet a refused watcher waits for. It does not wait for the account, which may never get
 * space. */
static bool refuse(const kw_item *item, size_t needs) {
  if (item->watcher != NULL)
    item->watcher->needs = needs < KW_NEEDS_ALL ? (uint32_t)needs : KW_NEEDS_ALL;
  return false;
}

bool kw_outlet_offer(kw_outlet *outlet, const kw_item *item) {
  size_t cost = cost_of(outlet, item);
  if (outlet->n > 0) {
    if (outlet->bytes + cost > outlet->max_bytes) return refuse(item, cost);
    if (outlet->account != NULL && !kw_account_ask(outlet->account, own_size(item)))
      return refuse(item, KW_NEEDS_ALL);
  }
  return kw_outlet_push(outlet, item) || refuse(item, KW_NEEDS_ALL);
}

bool kw_outlet_pop(kw_outlet *outlet, kw_item *item) {
  if (outlet->n == 0) return false;
  *item = *item_at(outlet, 0);
  outlet->first = (outlet->first + 1) & (outlet->cap - 1);
  outlet->n--;
  discharge(outlet, item, outlet->n > 0 ? item_at(outlet, 0) : NULL);
  if (item->watcher != NULL) {
    item->watcher->queued--;
  } else {
    outlet->progress_all--;
  }
  if (outlet->n == 0 && outlet->cap > FIRST_CAP) { /* an empty outlet frees a large ring buffer */
    kw_free(outlet->items);
    outlet->items = NULL;
    outlet->cap = outlet->first = 0;
  }
  return true;
}

const kw_item *kw_outlet_first(const kw_outlet *outlet) {
  return outlet->n == 0 ? NULL : item_at(outlet, 0);
}

kw_watcher *kw_outlet_next_watcher(const kw_outlet *outlet, size_t *at) {
  if (outlet->with_ids) return kw_map_next(&outlet->ids, at);
  return (*at)++ == 0 ? outlet->only : NULL;
}

/* Drops the items of a watcher, or with NULL of the whole outlet, up to the kind `last`. Returns their number. */
static uint32_t forget(kw_outlet *outlet, const kw_watcher *watcher, kw_item_kind last) {
  size_t kept = 0;
  uint32_t dropped = 0;
  for (size_t i = 0; i < outlet->n; i++) {
    kw_item *item = item_at(outlet, i);
    if (item->watcher != watcher || item->kind > last) {
      *item_at(outlet, kept++) = *item;
      continue;
    }
    dropped++;
    count_dropped(outlet, item);
    discharge(outlet, item, i + 1 < outlet->n ? item_at(outlet, i + 1) : NULL);
    if (item->batch != NULL) kw_batch_release(item->batch);
  }
  outlet->n = kept;
  return dropped;
}

void kw_outlet_forget(kw_outlet *outlet, kw_watcher *watcher) {
  if (watcher->queued > 0) watcher->queued -= forget(outlet, watcher, KW_ITEM_CORRUPT);
}

void kw_outlet_forget_news(kw_outlet *outlet, kw_watcher *watcher) {
  if (watcher->queued > 0) watcher->queued -= forget(outlet, watcher, KW_ITEM_PROGRESS);
}

void kw_outlet_forget_progress_all(kw_outlet *outlet) {
  if (outlet->progress_all == 0) return;
  forget(outlet, NULL, KW_ITEM_PROGRESS);
  outlet->progress_all = 0;
}

void kw_outlet_drop_items(kw_outlet *outlet) {
  kw_item item;
  while (kw_outlet_pop(outlet, &item)) {
    count_dropped(outlet, &item);
    if (item.batch != NULL) kw_batch_release(item.batch);
  }
  kw_free(outlet->items);
  outlet->items = NULL;
  outlet->cap = outlet->first = 0;
}

bool kw_outlet_has_room(const kw_outlet *outlet, const kw_watcher *watcher, size_t promised) {
  if (outlet->n == 0) return true;
  return outlet->bytes <= outlet->max_bytes / 2 &&
         outlet->bytes + promised + watcher->needs <= outlet->max_bytes;
}
