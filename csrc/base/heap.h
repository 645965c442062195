/* SPDX-License-Identifier: MIT
 *
 * heap: what is due next. A binary heap of nodes that lie inside their owners and know their place, so
 * that any of them can be removed or moved in O(log n).
 */
#ifndef KW_BASE_HEAP_H
#define KW_BASE_HEAP_H

#include "base/common.h"

typedef struct kw_heap_node {
  int64_t when; /* least first */
  int64_t rank; /* least first among equal times */
  size_t at;    /* its place in the heap */
} kw_heap_node;

typedef struct kw_heap {
  kw_heap_node **nodes;
  size_t n;
  size_t cap;
} kw_heap;

/* An all-zero heap is empty and ready for use. */
void kw_heap_drop(kw_heap *heap);

/* The least node, or NULL. */
static inline kw_heap_node *kw_heap_first(const kw_heap *heap) {
  return heap->n == 0 ? NULL : heap->nodes[0];
}

/* Makes room for one more node, so that the next add cannot fail; false if memory is short. */
bool kw_heap_reserve(kw_heap *heap);

void kw_heap_add(kw_heap *heap, kw_heap_node *node);
void kw_heap_remove(kw_heap *heap, kw_heap_node *node);

/* Gives a node of the heap another time. */
void kw_heap_move(kw_heap *heap, kw_heap_node *node, int64_t when);

#endif
