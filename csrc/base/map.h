/* SPDX-License-Identifier: MIT
 *
 * map: from 64-bit ids to pointers, by open addressing.
 *
 * A slot whose value is NULL is free, so NULL cannot be stored. Removal shifts the run that follows back by
 * one and never shrinks: what was removed can be put again without memory.
 */
#ifndef KW_BASE_MAP_H
#define KW_BASE_MAP_H

#include "base/common.h"

typedef struct kw_map_slot {
  uint64_t id;
  void *value;
} kw_map_slot;

typedef struct kw_map {
  kw_map_slot *slots;
  size_t n;
  size_t cap; /* a power of two, or 0 before the first put */
} kw_map;

/* An all-zero map is empty and ready for use. */
void kw_map_drop(kw_map *map);

void *kw_map_get(const kw_map *map, uint64_t id);

/* Makes room for one more id, so that the next put cannot fail; false if memory is short. */
bool kw_map_reserve(kw_map *map);

/* Sets the value of an id, which replaces an earlier one. There must be room for it. */
void kw_map_put(kw_map *map, uint64_t id, void *value);

/* Returns what was there, or NULL. */
void *kw_map_remove(kw_map *map, uint64_t id);

/* Walks the values in no particular order: start with *at = 0, ends with NULL. The map may not change meanwhile. */
void *kw_map_next(const kw_map *map, size_t *at);

#endif
