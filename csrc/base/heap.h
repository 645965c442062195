/* SPDX-License-Identifier: MIT
 *
 * heap: an intrusive binary heap, the least time first. A node is a part of its owner and knows its position, so that
 * any node is removed or moved in O(log n).
 */
#ifndef KW_BASE_HEAP_H
#define KW_BASE_HEAP_H

#include "base/common.h"

typedef struct kw_heap_node {
  int64_t when; /* time, set before kw_heap_add */
  int64_t rank; /* order among equal times, the least first; set before kw_heap_add */
  size_t at;    /* position in the heap, set by the heap */
} kw_heap_node;

/* An all-zero heap is empty and ready for use. It borrows its nodes. */
typedef struct kw_heap {
  kw_heap_node **nodes;
  size_t n;
  size_t cap;
} kw_heap;

/* Frees the memory of the heap, not the nodes. The heap is then empty, and ready for use. */
void kw_heap_drop(kw_heap *heap);

/* Returns the node with the least time, or NULL if the heap is empty. O(1). */
static inline kw_heap_node *kw_heap_first(const kw_heap *heap) {
  return heap->n == 0 ? NULL : heap->nodes[0];
}

/* Makes room for one more node. Returns false if memory is short. */
bool kw_heap_reserve(kw_heap *heap);

/* Adds a node. There must be room, see kw_heap_reserve. O(log n). */
void kw_heap_add(kw_heap *heap, kw_heap_node *node);

/* Removes a node that is in the heap. O(log n). */
void kw_heap_remove(kw_heap *heap, kw_heap_node *node);

/* Gives room back if the nodes, and `spare` more, need at most a quarter of it, see kw_shrink. Room for `spare` more
 * remains. */
void kw_heap_shrink(kw_heap *heap, size_t spare);

/* Changes the time of a node that is in the heap. O(log n). */
void kw_heap_move(kw_heap *heap, kw_heap_node *node, int64_t when);

#endif
