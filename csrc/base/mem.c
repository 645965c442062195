/* SPDX-License-Identifier: MIT */
#include <sys/mman.h>

#include "base/mem.h"

#ifdef KW_PROBE

static _Thread_local struct {
  size_t count;
  size_t fail_at;   /* the allocation that fails; 0: none */
  size_t fail_from; /* the first of the allocations that fail; 0: none */
} probe;

static _Atomic size_t live; /* of all threads: another thread may free a block */

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

void *kw_alloc(size_t size) {
  void *p = kw_mem_must_fail() ? NULL : malloc(size);
  if (p != NULL) live++;
  return p;
}

void *kw_realloc(void *p, size_t size) {
  if (p == NULL) return kw_alloc(size);
  return kw_mem_must_fail() ? NULL : realloc(p, size);
}

void kw_free(void *p) {
  if (p != NULL) live--;
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
