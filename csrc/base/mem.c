/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <sys/mman.h>

#include "base/mem.h"

#ifdef KW_PROBE

static _Thread_local struct {
  size_t count;
  size_t fail_at;   /* the allocation that fails; 0: none */
  size_t fail_from; /* the first of the allocations that fail; 0: none */
} probe;

/* Of all threads: another thread may free a block. */
static _Atomic size_t live;
static _Atomic size_t live_bytes;

void kw_mem_fail_at(size_t n) {
  probe.fail_at = n == 0 ? 0 : probe.count + n;
}

void kw_mem_fail_from(size_t n) {
  probe.fail_from = n == 0 ? 0 : probe.count + n;
}

bool kw_mem_must_fail(void) {
  probe.count++;
  if (probe.fail_from != 0 && probe.count >= probe.fail_from) return true;
  return probe.count == probe.fail_at;
}

size_t kw_mem_count(void) {
  return probe.count;
}

size_t kw_mem_live(void) {
  return live;
}

size_t kw_mem_bytes(void) {
  return live_bytes;
}

void *kw_alloc(size_t size) {
  void *p = kw_mem_must_fail() ? NULL : malloc(size);
  if (p == NULL) return NULL;
  live++;
  live_bytes += malloc_usable_size(p);
  return p;
}

void *kw_alloc_zeroed(size_t size) {
  void *p = kw_alloc(size);
  return p == NULL ? NULL : memset(p, 0, size);
}

void *kw_realloc(void *p, size_t size) {
  if (p == NULL) return kw_alloc(size);
  if (kw_mem_must_fail()) return NULL;
  size_t before = malloc_usable_size(p);
  p = realloc(p, size);
  if (p != NULL) live_bytes += malloc_usable_size(p) - before;
  return p;
}

void kw_free(void *p) {
  if (p == NULL) return;
  live--;
  live_bytes -= malloc_usable_size(p);
  free(p);
}

/* Blocks of the heap, since sanitizers know their bounds. */
void *kw_alloc_pages(size_t size) {
  return kw_alloc(size);
}

void kw_free_pages(void *p, size_t size) {
  (void)size;
  kw_free(p);
}

#else

void *kw_alloc_pages(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void kw_free_pages(void *p, size_t size) {
  if (p != NULL) munmap(p, size);
}

#endif

#define JOIN_BYTES 2048 /* too large for the lists of freed blocks that glibc looks at first */

void kw_mem_join(void) {
  void *volatile block =
      malloc(JOIN_BYTES); /* volatile: the compiler must not leave the pair out */
  free(block);
}

void kw_mem_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

bool kw_reserve(void *items, size_t *cap, size_t need, size_t size) {
  void **vector = items;
  if (need <= *cap) return true;
  size_t grown = *cap < 4 ? 4 : *cap;
  while (grown < need) {
    if (grown > SIZE_MAX / 2 / size) return false;
    grown *= 2;
  }
  void *p = kw_realloc(*vector, grown * size);
  if (p == NULL) return false;
  *vector = p;
  *cap = grown;
  return true;
}

void kw_shrink(void *items, size_t *cap, size_t n, size_t size) {
  void **vector = items;
  if (*cap <= KW_KEEP || n > *cap / 4) return;
  size_t shrunk = n * 2 > KW_KEEP ? n * 2 : KW_KEEP;
  void *p = kw_realloc(*vector, shrunk * size);
  if (p == NULL) return;
  *vector = p;
  *cap = shrunk;
}
