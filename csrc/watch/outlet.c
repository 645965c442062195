/* SPDX-License-Identifier: MIT */
#include "watch/outlet.h"

#include "base/mem.h"

#define FIRST_CAP 4

static size_t cost_of(const kw_item *item) {
  return KW_OUTLET_ITEM_BYTES + (item->batch == NULL ? 0 : item->batch->bytes);
}

static kw_item *item_at(const kw_outlet *outlet, size_t i) {
  return &outlet->items[(outlet->first + i) & (outlet->cap - 1)];
}

/* A ring of twice the size, with the items from its beginning on. */
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
  outlet->n++;
  *item_at(outlet, outlet->n - 1) = *item;
  outlet->bytes += cost_of(item);
  if (item->watcher != NULL) item->watcher->queued++;
  return true;
}

bool kw_outlet_offer(kw_outlet *outlet, const kw_item *item) {
  if (outlet->n > 0 && outlet->bytes + cost_of(item) > outlet->max_bytes) return false;
  return kw_outlet_push(outlet, item);
}

bool kw_outlet_pop(kw_outlet *outlet, kw_item *item) {
  if (outlet->n == 0) return false;
  *item = *item_at(outlet, 0);
  outlet->first = (outlet->first + 1) & (outlet->cap - 1);
  outlet->n--;
  outlet->bytes -= cost_of(item);
  if (item->watcher != NULL) item->watcher->queued--;
  if (outlet->n == 0 && outlet->cap > FIRST_CAP) { /* an idle outlet is a small one */
    kw_free(outlet->items);
    outlet->items = NULL;
    outlet->cap = outlet->first = 0;
  }
  return true;
}

const kw_item *kw_outlet_first(const kw_outlet *outlet) {
  return outlet->n == 0 ? NULL : item_at(outlet, 0);
}

void kw_outlet_forget(kw_outlet *outlet, kw_watcher *watcher) {
  if (watcher->queued == 0) return;
  size_t kept = 0;
  for (size_t i = 0; i < outlet->n; i++) {
    kw_item *item = item_at(outlet, i);
    if (item->watcher != watcher) {
      *item_at(outlet, kept++) = *item;
      continue;
    }
    outlet->bytes -= cost_of(item);
    if (item->batch != NULL) kw_batch_release(item->batch);
  }
  outlet->n = kept;
  watcher->queued = 0;
}

void kw_outlet_drop_items(kw_outlet *outlet) {
  kw_item item;
  while (kw_outlet_pop(outlet, &item)) {
    if (item.batch != NULL) kw_batch_release(item.batch);
  }
  kw_free(outlet->items);
  outlet->items = NULL;
  outlet->cap = outlet->first = 0;
}

bool kw_outlet_has_room(const kw_outlet *outlet) {
  return outlet->bytes <= outlet->max_bytes / 2;
}
