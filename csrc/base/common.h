/* SPDX-License-Identifier: MIT
 *
 * common: what every file of the core may take for granted.
 *
 * The rock is built without compiler flags of ours, so symbols are hidden here: everything declared after
 * this header stays inside the shared object, unless it says KW_EXPORT. Headers of the system that are
 * not listed below must therefore be included before the first header of ours.
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

#define KW_EXPORT __attribute__((visibility("default")))

#define KW_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The struct of type `type` whose member `member` lies at `ptr`. */
#define KW_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline size_t kw_min_size(size_t a, size_t b) {
  return a < b ? a : b;
}

#endif
