/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

void *kw_alloc_pages(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void kw_free_pages(void *p, size_t size) {
  if (p != NULL) munmap(p, size);
}

#define JOIN_BYTES 2048 /* too large for the lists of freed blocks that glibc searches first */

void kw_mem_join(void) {
  void *volatile block = malloc(JOIN_BYTES); /* volatile: the compiler must not omit the pair */
  free(block);
}

/* {====== Trims ====== */

#define TRIM_LARGEST (120 << 10) /* malloc maps blocks of 128 KiB and more */
#define TRIM_LEAST 4000
#define TRIM_BLOCKS 32 /* per step */
#define TRIM_FEW 4000  /* blocks: malloc_trim examines this many in 4 ms */

typedef struct kw_mem_block {
  struct kw_mem_block *next;
} block;

/* True if a block is in the main heap, which ends at `end`, and the heap did not grow for it. */
static bool is_old(const block *b, const void *end) {
  return (uintptr_t)b < (uintptr_t)end && sbrk(0) == end;
}

static void give_pages_back(block *b, size_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t from = ((uintptr_t)(b + 1) + page - 1) & ~(page - 1);
  uintptr_t to = ((uintptr_t)b + size) & ~(page - 1);
  if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}

void kw_mem_trim_begin(kw_mem_trim *trim) {
#ifdef __GLIBC__
  void *end = sbrk(0);
  block *b = malloc(JOIN_BYTES);
  bool is_main = b != NULL && (uintptr_t)b < (uintptr_t)end;
  free(b);
  *trim = (kw_mem_trim){.size = is_main ? TRIM_LARGEST : 0};
  if (b != NULL && !is_main) malloc_trim(0);
#else
  (void)trim;
#endif
}

static void find_blocks(kw_mem_trim *trim) {
  for (int n = 0; n < TRIM_BLOCKS && trim->size >= TRIM_LEAST; n++) {
    const void *end = sbrk(0);
    block *b = malloc(trim->size);
    if (b == NULL || !is_old(b, end)) {
      free(b);
      trim->size -= trim->size / 8;
      continue;
    }
    give_pages_back(b, trim->size);
    b->next = trim->blocks;
    trim->blocks = b;
    trim->n++;
  }
}

static void free_blocks(kw_mem_trim *trim, size_t n) {
  for (block *b; n > 0 && (b = trim->blocks) != NULL; n--) {
    trim->blocks = b->next;
    free(b);
  }
  kw_mem_join();
}

bool kw_mem_trim_step(kw_mem_trim *trim) {
  if (trim->size >= TRIM_LEAST) {
    find_blocks(trim);
    return true;
  }
  trim->size = 0;
  if (trim->blocks == NULL) return false;
  free_blocks(trim, TRIM_BLOCKS);
#ifdef __GLIBC__
  if (trim->blocks == NULL && trim->n <= TRIM_FEW) malloc_trim(0);
#endif
  return trim->blocks != NULL;
}

void kw_mem_trim_end(kw_mem_trim *trim) {
  trim->size = 0;
  if (trim->blocks != NULL) free_blocks(trim, SIZE_MAX);
}

/* }====== */

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
