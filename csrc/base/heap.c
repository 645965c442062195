/* SPDX-License-Identifier: MIT */
#include "base/heap.h"

#include "base/mem.h"

static bool before(const kw_heap_node *a, const kw_heap_node *b) {
  return a->when != b->when ? a->when < b->when : a->rank < b->rank;
}

static void place(kw_heap *heap, size_t at, kw_heap_node *node) {
  heap->nodes[at] = node;
  node->at = at;
}

static void rise(kw_heap *heap, kw_heap_node *node) {
  size_t at = node->at;
  while (at > 0 && before(node, heap->nodes[(at - 1) / 2])) {
    place(heap, at, heap->nodes[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  place(heap, at, node);
}

static void sink(kw_heap *heap, kw_heap_node *node) {
  size_t at = node->at;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= heap->n) break;
    if (child + 1 < heap->n && before(heap->nodes[child + 1], heap->nodes[child])) child++;
    if (!before(heap->nodes[child], node)) break;
    place(heap, at, heap->nodes[child]);
    at = child;
  }
  place(heap, at, node);
}

void kw_heap_drop(kw_heap *heap) {
  kw_free(heap->nodes);
  *heap = (kw_heap){0};
}

bool kw_heap_reserve(kw_heap *heap) {
  return kw_reserve(&heap->nodes, &heap->cap, heap->n + 1, sizeof *heap->nodes);
}

void kw_heap_add(kw_heap *heap, kw_heap_node *node) {
  assert(heap->n < heap->cap);
  place(heap, heap->n++, node);
  rise(heap, node);
}

void kw_heap_remove(kw_heap *heap, kw_heap_node *node) {
  size_t at = node->at;
  kw_heap_node *last = heap->nodes[--heap->n];
  if (last == node) return;
  place(heap, at, last);
  rise(heap, last);
  sink(heap, last);
}

void kw_heap_shrink(kw_heap *heap, size_t spare) {
  kw_shrink(&heap->nodes, &heap->cap, heap->n + spare, sizeof *heap->nodes);
}

void kw_heap_move(kw_heap *heap, kw_heap_node *node, int64_t when) {
  node->when = when;
  rise(heap, node);
  sink(heap, node);
}
