/* SPDX-License-Identifier: MIT
 *
 * mem: allocation. All code of the core allocates and frees memory with these functions.
 *
 * Every allocation may fail. A function that gets NULL leaves its object unchanged, unless its contract says otherwise,
 * and returns KW_ERR_NO_MEMORY, NULL or false. In builds for tests, selected allocations fail (probe/mem.h).
 */
#ifndef KW_BASE_MEM_H
#define KW_BASE_MEM_H

#include "base/common.h"

/* Returns `size` bytes, which are not zeroed; or NULL if memory is short. */
static inline void *kw_alloc(size_t size) {
  return KW_MALLOC(size);
}

/* Changes the size of a block, which may move; p may be NULL. Returns NULL, with the block unchanged, if memory is
 * short. */
static inline void *kw_realloc(void *p, size_t size) {
  return KW_REALLOC(p, size);
}

/* Returns `size` zeroed bytes, or NULL if memory is short. A large block costs nothing extra: the system has zeroed its
 * pages. */
static inline void *kw_alloc_zeroed(size_t size) {
  return KW_CALLOC(1, size);
}

/* Frees a block. p may be NULL. */
static inline void kw_free(void *p) {
  KW_FREE(p);
}

/* Maps pages for `size` bytes, which are unmapped when they are freed. Returns NULL if memory is short. For large
 * blocks with a short life, which would otherwise fragment the heap. */
void *kw_alloc_pages(size_t size);

/* Frees a block of kw_alloc_pages; `size` is the allocated size. p may be NULL. */
void kw_free_pages(void *p, size_t size);

/* Makes malloc join the small blocks that this thread has freed with adjacent free blocks. glibc collects freed small
 * blocks, and joins all of them in the next allocation of a large block, which takes 75 ms after a million blocks. Code
 * that frees many blocks in several turns calls this function after each turn. */
void kw_mem_join(void);

/* A trim returns pages inside of malloc's free blocks to the system, in steps, since glibc's malloc_trim examines all
 * blocks at once, which takes 50 ms if there are many. For each size, from 120 KiB down to a page, a trim allocates
 * free blocks and returns their pages, until malloc takes new memory for a block of this size. At the end it frees the
 * blocks. If there were few blocks, malloc_trim returns the rest. All zero: no trim has begun. */
typedef struct kw_mem_trim {
  size_t size;                 /* the size that the next step allocates; 0: the search has ended */
  struct kw_mem_block *blocks; /* the list of blocks that were allocated, and are not freed yet */
  size_t n;                    /* number of blocks that the trim has allocated */
} kw_mem_trim;

/* Begins a trim. An earlier one must have ended. Without glibc does nothing. In a thread whose malloc does not use the
 * program's main heap, such as the thread of a server, calls malloc_trim instead, and begins no trim. */
void kw_mem_trim_begin(kw_mem_trim *trim);

/* Continues a trim by about 4 MiB. Returns true if it has not ended. */
bool kw_mem_trim_step(kw_mem_trim *trim);

/* Ends a trim: frees its blocks at once. */
void kw_mem_trim_end(kw_mem_trim *trim);

/* Makes room for at least `need` elements of `size` bytes in a vector. `items` is the address of the pointer to
 * the vector, and *cap is the number of elements that it has room for; both are updated. The room grows by
 * doubling, and the vector may move. Returns false, with nothing changed, if memory is short. */
bool kw_reserve(void *items, size_t *cap, size_t need, size_t size);

/* kw_shrink leaves room for at least this many elements. */
#define KW_KEEP KW_LIMIT(1024, 8)

/* Shrinks a vector of `n` elements if they use at most a quarter of its room. The other parameters are those of
 * kw_reserve. The vector may move. If memory is short, the vector keeps its room. A removal followed by a shrink is
 * amortized O(1). */
void kw_shrink(void *items, size_t *cap, size_t n, size_t size);

#endif
