/* SPDX-License-Identifier: MIT */
#include <sanitizer/allocator_interface.h>
#include <stdbool.h>

#include "memory.h"

static size_t used;
static bool is_counting;

/* {====== What the sanitizer tells ====== */

static void on_malloc(const volatile void *p, size_t size) {
  if (p != NULL) used += size;
}

/* A block that is older than the first call was not counted. */
static void on_free(const volatile void *p) {
  size_t size = p == NULL ? 0 : __sanitizer_get_allocated_size(p);
  used -= size < used ? size : used;
}

/* }====== */

size_t memory_used(void) {
  if (!is_counting) __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  is_counting = true;
  return used;
}
