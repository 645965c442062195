/* SPDX-License-Identifier: MIT
 *
 * arena: memory for the length of one call, given back all at once.
 *
 * Blocks are chained; a reset keeps one block of ordinary size, so that calls of ordinary size allocate nothing.
 */
#ifndef KW_BASE_ARENA_H
#define KW_BASE_ARENA_H

#include "base/common.h"

typedef struct kw_arena_block kw_arena_block;

typedef struct kw_arena {
  kw_arena_block *top; /* the block being filled; the others are chained behind it */
} kw_arena;

/* Zeroed memory, aligned for any type, that lives until the next reset; NULL if memory is short. An arena
 * that is all zero is ready for use. */
void *kw_arena_alloc(kw_arena *arena, size_t size);

/* The same for `n` elements of `size` bytes; NULL also when the product does not fit. */
void *kw_arena_array(kw_arena *arena, size_t n, size_t size);

void kw_arena_reset(kw_arena *arena);
void kw_arena_drop(kw_arena *arena);

#endif
