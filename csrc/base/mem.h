/* SPDX-License-Identifier: MIT
 *
 * mem: the one door to the heap.
 *
 * Every allocation of the core passes here and may fail; a caller that gets NULL leaves its object as it
 * was and returns KW_ERR_NO_MEMORY. In a probe build the door counts, and fails on demand: in
 * each thread by itself.
 */
#ifndef KW_BASE_MEM_H
#define KW_BASE_MEM_H

#include "base/common.h"

#ifdef KW_PROBE

void *kw_alloc(size_t size);
void *kw_realloc(void *p, size_t size);
void kw_free(void *p);

/* The n-th allocation from now fails, and only that one; 0 disarms. */
void kw_mem_fail_at(size_t n);
/* From the n-th allocation on all fail, until disarmed. */
void kw_mem_fail_from(size_t n);
/* Counts one allocation made elsewhere (Lua's); true if it has to fail. */
bool kw_mem_must_fail(void);
/* Allocations so far; and blocks not yet freed, of all threads. */
size_t kw_mem_count(void);
size_t kw_mem_live(void);

#else

static inline void *kw_alloc(size_t size) {
  return malloc(size);
}

static inline void *kw_realloc(void *p, size_t size) {
  return realloc(p, size);
}

static inline void kw_free(void *p) {
  free(p);
}

#endif

/* Zeroed memory. */
static inline void *kw_alloc_zeroed(size_t size) {
  void *p = kw_alloc(size);
  if (p != NULL) memset(p, 0, size);
  return p;
}

/* Makes room for at least `need` elements of `size` bytes in the vector at *items, which has room for *cap.
 * Grows by doubling. Returns false, with nothing changed, if memory is short. */
bool kw_reserve(void *items, size_t *cap, size_t need, size_t size);

#endif
