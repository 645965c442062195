/* SPDX-License-Identifier: MIT
 *
 * sorter: sorts items, one step at a time. Items are pushed; then kw_sorter_settle is called until it returns true, and
 * `items` are in order. No call takes more than O(log n) compares.
 *
 * A sorter with a limit holds only the first items of the order.
 */
#ifndef KW_BASE_SORTER_H
#define KW_BASE_SORTER_H

#include "base/common.h"

typedef struct kw_sorter_item {
  uint64_t head; /* items are in the order of their heads, the least first */
  int64_t id;    /* the caller's, like `sub` */
  uint32_t sub;
  uint32_t at; /* how many items were pushed before: the order of items that are otherwise equal */
} kw_sorter_item;

/* Compares two items whose heads are equal. Returns < 0, 0 or > 0. */
typedef int (*kw_sorter_compare)(const kw_sorter_item *a, const kw_sorter_item *b, void *ctx);

/* All zero, except for `limit`, a sorter is empty and ready for use. While items are pushed, they are a heap: the last
 * item of the order is at its top. */
typedef struct kw_sorter {
  kw_sorter_item *items;
  size_t n;
  size_t cap;
  size_t limit;   /* most items that are held; 0: no limit */
  size_t pushed;  /* number of items that were pushed */
  size_t settled; /* number of items at the end of the array that are in their final position */
} kw_sorter;

/* Frees the items. The sorter is then empty, without a limit, and ready for use. */
void kw_sorter_drop(kw_sorter *sorter);

/* Adds an item, whose `at` the sorter sets. `compare` may be NULL: equal heads are then in the order of pushing.
 * Returns false if memory is short, or if UINT32_MAX items were pushed. */
bool kw_sorter_push(kw_sorter *sorter, kw_sorter_item item, kw_sorter_compare compare, void *ctx);

/* Moves one more item to its final position. Returns true once all items are in order. `compare` must be that of the
 * pushes. */
bool kw_sorter_settle(kw_sorter *sorter, kw_sorter_compare compare, void *ctx);

#endif
