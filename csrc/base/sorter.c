/* SPDX-License-Identifier: MIT */
#include "base/sorter.h"

#include "base/mem.h"

typedef struct order {
  kw_sorter_compare compare;
  void *ctx;
} order;

static bool is_after(const kw_sorter_item *a, const kw_sorter_item *b, const order *by) {
  if (a->head != b->head) return a->head > b->head;
  int c = by->compare == NULL ? 0 : by->compare(a, b, by->ctx);
  return c != 0 ? c > 0 : a->at > b->at;
}

static void rise(kw_sorter *sorter, size_t at, kw_sorter_item item, const order *by) {
  while (at > 0 && is_after(&item, &sorter->items[(at - 1) / 2], by)) {
    sorter->items[at] = sorter->items[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  sorter->items[at] = item;
}

/* Replaces the top of a heap of `n` items by an item. */
static void sink(kw_sorter *sorter, size_t n, kw_sorter_item item, const order *by) {
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && is_after(&sorter->items[child + 1], &sorter->items[child], by)) child++;
    if (!is_after(&sorter->items[child], &item, by)) break;
    sorter->items[at] = sorter->items[child];
    at = child;
  }
  sorter->items[at] = item;
}

void kw_sorter_drop(kw_sorter *sorter) {
  kw_free(sorter->items);
  *sorter = (kw_sorter){0};
}

bool kw_sorter_push(kw_sorter *sorter, kw_sorter_item item, kw_sorter_compare compare, void *ctx) {
  order by = {compare, ctx};
  if (sorter->pushed == UINT32_MAX) return false;
  item.at = (uint32_t)sorter->pushed;
  if (sorter->limit > 0 && sorter->n == sorter->limit) {
    if (is_after(&sorter->items[0], &item, &by)) sink(sorter, sorter->n, item, &by);
  } else {
    if (!kw_reserve(&sorter->items, &sorter->cap, sorter->n + 1, sizeof item)) return false;
    rise(sorter, sorter->n++, item, &by);
  }
  sorter->pushed++;
  return true;
}

bool kw_sorter_settle(kw_sorter *sorter, kw_sorter_compare compare, void *ctx) {
  order by = {compare, ctx};
  size_t left = sorter->n - sorter->settled;
  if (left > 1) {
    kw_sorter_item last = sorter->items[left - 1];
    sorter->items[left - 1] = sorter->items[0];
    sink(sorter, left - 1, last, &by);
    sorter->settled++;
  }
  return left <= 2;
}
