/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include "base/mem.h"

#define BLOCK_BYTES                                                                                \
  4096 /* of an ordinary block; a larger request gets a block of the size of the request */

struct kw_arena_block {
  kw_arena_block *below;
  size_t size;
  size_t used;
  max_align_t bytes[];
};

static kw_arena_block *push_block(kw_arena *arena, size_t need) {
  size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;
  kw_arena_block *block = kw_alloc(sizeof *block + size);
  if (block == NULL) return NULL;
  *block = (kw_arena_block){.below = arena->top, .size = size};
  arena->top = block;
  return block;
}

void *kw_arena_alloc(kw_arena *arena, size_t size) {
  const size_t align = _Alignof(max_align_t);
  if (size > PTRDIFF_MAX) return NULL;
  size = (size + align - 1) & ~(align - 1);
  kw_arena_block *block = arena->top;
  if (block == NULL || block->size - block->used < size) block = push_block(arena, size);
  if (block == NULL) return NULL;
  void *p = (char *)block->bytes + block->used;
  block->used += size;
  return memset(p, 0, size);
}

void *kw_arena_array(kw_arena *arena, size_t n, size_t size) {
  if (n > PTRDIFF_MAX / size) return NULL;
  return kw_arena_alloc(arena, n * size);
}

void kw_arena_reset(kw_arena *arena) {
  kw_arena_block *kept = NULL;
  while (arena->top != NULL) {
    kw_arena_block *block = arena->top;
    arena->top = block->below;
    if (kept == NULL && block->size == BLOCK_BYTES) {
      kept = block;
    } else {
      kw_free(block);
    }
  }
  if (kept != NULL) *kept = (kw_arena_block){.size = BLOCK_BYTES};
  arena->top = kept;
}

void kw_arena_drop(kw_arena *arena) {
  while (arena->top != NULL) {
    kw_arena_block *block = arena->top;
    arena->top = block->below;
    kw_free(block);
  }
}
