/* SPDX-License-Identifier: MIT
 *
 * arena: memory that is allocated piece by piece, and freed all at once.
 *
 * An arena is a list of blocks, and is reset after each call that it serves. A reset keeps one block of ordinary size,
 * so that most calls need no new block.
 */
#ifndef KW_BASE_ARENA_H
#define KW_BASE_ARENA_H

#include "base/common.h"

typedef struct kw_arena_block kw_arena_block;

/* An all-zero arena is empty and ready for use. */
typedef struct kw_arena {
  kw_arena_block *top; /* the block that is being filled, first of the list */
} kw_arena;

/* Returns `size` bytes of zeroed memory, aligned for any type, valid until the next reset; or NULL if memory is
 * short. O(size). */
void *kw_arena_alloc(kw_arena *arena, size_t size);

/* Returns zeroed memory for `n` elements of `size` bytes, like kw_arena_alloc; NULL also if the product overflows. */
void *kw_arena_array(kw_arena *arena, size_t n, size_t size);

/* Frees everything that was allocated, except for one block of ordinary size, which the arena reuses. */
void kw_arena_reset(kw_arena *arena);

/* Frees everything. The arena is then empty, and ready for use. */
void kw_arena_drop(kw_arena *arena);

#endif
