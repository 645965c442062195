/* SPDX-License-Identifier: MIT
 *
 * mem: stands in the place of base/mem.c.
 */
#define kw_alloc_pages usual_alloc_pages
#define kw_free_pages usual_free_pages
#define kw_mem_trim_begin usual_trim_begin
#include "base/mem.c"
#undef kw_alloc_pages
#undef kw_free_pages
#undef kw_mem_trim_begin

#include <malloc.h>

#include "probe/mem.h"

void *kw_alloc_pages(size_t size);
void kw_free_pages(void *p, size_t size);
void kw_mem_trim_begin(kw_mem_trim *trim);

_Thread_local size_t kw_hash_visits;

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

void *kw_probe_malloc(size_t size) {
  void *p = kw_mem_must_fail() ? NULL : malloc(size);
  if (p == NULL) return NULL;
  live++;
  live_bytes += malloc_usable_size(p);
  return p;
}

void *kw_probe_calloc(size_t n, size_t size) {
  void *p = kw_probe_malloc(n * size);
  return p == NULL ? NULL : memset(p, 0, n * size);
}

void *kw_probe_realloc(void *p, size_t size) {
  if (p == NULL) return kw_probe_malloc(size);
  if (kw_mem_must_fail()) return NULL;
  size_t before = malloc_usable_size(p);
  p = realloc(p, size);
  if (p != NULL) live_bytes += malloc_usable_size(p) - before;
  return p;
}

void kw_probe_free(void *p) {
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

/* Gives nothing back. */
void kw_mem_trim_begin(kw_mem_trim *trim) {
  (void)trim;
}
