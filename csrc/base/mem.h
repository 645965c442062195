/* SPDX-License-Identifier: MIT
 *
 * mem: allocation. All code of the core allocates and frees by these functions.
 *
 * Every allocation may fail. A caller that gets NULL leaves its object as it was, and returns KW_ERR_NO_MEMORY. A
 * probe build (KW_PROBE) counts allocations and makes chosen ones fail, in each thread by itself.
 */
#ifndef KW_BASE_MEM_H
#define KW_BASE_MEM_H

#include "base/common.h"

#ifdef KW_PROBE

/* The functions below have the contracts that stand in the other branch, and count allocations. */
void *kw_alloc(size_t size);
void *kw_alloc_zeroed(size_t size);
void *kw_realloc(void *p, size_t size);
void kw_free(void *p);

/* Makes the n-th allocation from now on fail, and only that one. 0: none. */
void kw_mem_fail_at(size_t n);

/* Makes the n-th allocation from now on and all later ones fail. 0: none. */
void kw_mem_fail_from(size_t n);

/* Counts an allocation that is made elsewhere (by Lua). Returns true if that allocation has to fail. */
bool kw_mem_must_fail(void);

/* Returns the number of allocations of this thread so far. */
size_t kw_mem_count(void);

/* Returns the number of blocks of all threads that are not freed yet. */
size_t kw_mem_live(void);

/* Returns the bytes of these blocks. */
size_t kw_mem_bytes(void);

#else

/* Returns `size` bytes, which are not zeroed; or NULL if memory is short. */
static inline void *kw_alloc(size_t size) {
  return malloc(size);
}

/* Changes the size of a block, which may move; p may be NULL. Returns NULL, with the block unchanged, if memory is
 * short. */
static inline void *kw_realloc(void *p, size_t size) {
  return realloc(p, size);
}

/* Returns `size` zeroed bytes, or NULL if memory is short. A large block takes no time: the system has zeroed it. */
static inline void *kw_alloc_zeroed(size_t size) {
  return calloc(1, size);
}

/* Frees a block. p may be NULL. */
static inline void kw_free(void *p) {
  free(p);
}

#endif

/* Returns `size` bytes, which go back to the system when they are freed, whatever was allocated meanwhile; or NULL if
 * memory is short. For large blocks with a short life: freed by kw_free they would leave a hole in the heap. */
void *kw_alloc_pages(size_t size);

/* Frees what kw_alloc_pages has returned for that size. p may be NULL. */
void kw_free_pages(void *p, size_t size);

/* Has malloc join the small blocks that this thread has freed with free blocks beside them. glibc puts small blocks
 * aside, and joins all of them in the next allocation of a large block: that takes 75 ms after a million of them. Who
 * frees many blocks in turns calls this function after each turn. */
void kw_mem_join(void);

/* A trim gives pages back to the system that lie inside of free blocks of malloc: in steps, since glibc's malloc_trim
 * looks at all blocks in one piece, which takes 50 ms where there are many. A trim allocates the free blocks that are
 * larger than a page, the largest first, until malloc takes new memory for one; gives back their pages; and then frees
 * them. If they were few, malloc_trim gives back the rest. All zero: it has not begun. */
typedef struct kw_mem_trim {
  size_t size;                 /* of the blocks that are looked for; 0: none */
  struct kw_mem_block *blocks; /* that were found, and are not freed yet */
  size_t n;                    /* blocks that were found */
} kw_mem_trim;

/* Begins a trim, which may not have begun, or has ended. Does nothing where malloc is not glibc's, or uses another heap
 * than the program's main one, as it does in the threads of servers: there all is done at once. */
void kw_mem_trim_begin(kw_mem_trim *trim);

/* Goes on with a trim: about 4 MiB. Returns true if it has not ended. */
bool kw_mem_trim_step(kw_mem_trim *trim);

/* Ends a trim at once. */
void kw_mem_trim_end(kw_mem_trim *trim);

/* Makes room for at least `need` elements of `size` bytes in a vector. `items` is the address of the pointer to
 * the vector, and *cap is the number of elements that it has room for; both are updated. The room grows by
 * doubling, and the vector may move. Returns false, with nothing changed, if memory is short. */
bool kw_reserve(void *items, size_t *cap, size_t need, size_t size);

/* Elements of a vector that are kept room for, even if there are fewer. */
#ifdef KW_PROBE
#define KW_KEEP 8 /* small, so that tests meet every vector that shrinks */
#else
#define KW_KEEP 1024
#endif

/* Gives room back if at most a quarter of the room of a vector is in use: `n` elements. The other parameters are those
 * of kw_reserve. The vector may move, and keeps its room if memory is short. Amortized, a removal is O(1). */
void kw_shrink(void *items, size_t *cap, size_t n, size_t size);

#endif
