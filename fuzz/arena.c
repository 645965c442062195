/* SPDX-License-Identifier: MIT
 *
 * arena: replaces base/arena.c. Every allocation is a block of its own, so that sanitizers see every access beyond
 * its end.
 */
#include "base/arena.h"

#include "base/mem.h"

struct kw_arena_block {
  kw_arena_block *below;
  max_align_t bytes[];
};

void *kw_arena_alloc(kw_arena *arena, size_t size) {
  if (size > PTRDIFF_MAX) return NULL;
  kw_arena_block *block = kw_alloc(sizeof *block + size);
  if (block == NULL) return NULL;
  block->below = arena->top;
  arena->top = block;
  return memset(block->bytes, 0, size);
}

void *kw_arena_array(kw_arena *arena, size_t n, size_t size) {
  if (n > PTRDIFF_MAX / size) return NULL;
  return kw_arena_alloc(arena, n * size);
}

void kw_arena_reset(kw_arena *arena) {
  kw_arena_drop(arena);
}

void kw_arena_drop(kw_arena *arena) {
  while (arena->top != NULL) {
    kw_arena_block *block = arena->top;
    arena->top = block->below;
    kw_free(block);
  }
}
