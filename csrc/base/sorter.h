/* SPDX-License-Identifier: MIT
 *
 * sorter: puts items in order, one step at a time. Items are pushed; then kw_sorter_settle is called until it returns
 * true, and `items` are in order. No call takes more than O(log n) compares.
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

/* All zero but `limit`, the sorter is empty and ready for use. A heap until it settles: the last item of the order is
 * at its top. */
typedef struct kw_sorter {
  kw_sorter_item *items;
  size_t n;
  size_t cap;
  size_t limit;   /* of items that are held; 0: none */
  size_t pushed;  /* items */
  size_t settled; /* items at the end of the array that have their place */
} kw_sorter;

/* Frees the items. The sorter is then empty, without a limit, and ready for use. */
void kw_sorter_drop(kw_sorter *sorter);

/* Adds an item, whose `at` the sorter sets. `compare` may be NULL: equal heads are then in the order of pushing.
 * Returns false if memory is short, or if UINT32_MAX items were pushed. */
bool kw_sorter_push(kw_sorter *sorter, kw_sorter_item item, kw_sorter_compare compare, void *ctx);

/* Gives one more item its place. Returns true once all have theirs. `compare` must be that of the pushes. */
bool kw_sorter_settle(kw_sorter *sorter, kw_sorter_compare compare, void *ctx);

#endif
