/* SPDX-License-Identifier: MIT
 *
 * common: standard headers, symbol visibility and a few macros. Every file of the core includes it.
 *
 * LuaRocks passes no compiler flags of ours, so a pragma hides symbols here: everything that is declared after this
 * header stays inside the shared object, unless it is marked KW_EXPORT. So a source file includes system headers that
 * are not listed below before its first header of ours.
 */
#ifndef KW_BASE_COMMON_H
#define KW_BASE_COMMON_H

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(hidden)

#include "base/hook.h"

#define KW_EXPORT __attribute__((visibility("default")))

/* The number of elements of an array. */
#define KW_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The struct of type `type` whose member `member` is at `ptr`. */
#define KW_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline size_t kw_min_size(size_t a, size_t b) {
  return a < b ? a : b;
}

#endif
