/* SPDX-License-Identifier: MIT */
#include "base/map.h"

#include "base/mem.h"

#define KEEP_CAP 16 /* a map of this size does not shrink */
#define FIRST_CAP 2 /* most maps stay small: the keys of a lease, the watchers of a stream */

/* Ids are often counters or addresses. The finalizer of MurmurHash3 spreads them over all bits. */
static size_t home(const kw_map *map, uint64_t id) {
  id ^= id >> 33;
  id *= UINT64_C(0xff51afd7ed558ccd);
  id ^= id >> 33;
  id *= UINT64_C(0xc4ceb9fe1a85ec53);
  id ^= id >> 33;
  return (size_t)id & (map->cap - 1);
}

/* Returns the slot of an id, or the free slot where the id would go. The table always has a free slot. */
static size_t locate(const kw_map *map, uint64_t id) {
  size_t i = home(map, id);
  while (map->slots[i].value != NULL && map->slots[i].id != id) i = (i + 1) & (map->cap - 1);
  return i;
}

void kw_map_drop(kw_map *map) {
  kw_free(map->slots);
  *map = (kw_map){0};
}

void *kw_map_get(const kw_map *map, uint64_t id) {
  return map->n == 0 ? NULL : map->slots[locate(map, id)].value;
}

static bool has_room(size_t n, size_t cap) {
  return n * 4 <= cap * 3;
}

/* Moves all ids to a table of another size. Returns false if memory is short. */
static bool resize(kw_map *map, size_t cap) {
  kw_map resized = {.cap = cap};
  resized.slots = kw_alloc_zeroed(cap * sizeof *resized.slots);
  if (resized.slots == NULL) return false;
  for (size_t i = 0; i < map->cap; i++) {
    if (map->slots[i].value != NULL) kw_map_put(&resized, map->slots[i].id, map->slots[i].value);
  }
  kw_free(map->slots);
  *map = resized;
  return true;
}

bool kw_map_reserve(kw_map *map) {
  if (has_room(map->n + 1, map->cap)) return true;
  return resize(map, map->cap == 0 ? FIRST_CAP : map->cap * 2);
}

void kw_map_shrink(kw_map *map, size_t spare) {
  size_t need = map->n + spare, cap = FIRST_CAP;
  if (map->cap <= KEEP_CAP || need > map->cap / 8) return;
  while (!has_room(need * 2, cap)) cap *= 2;
  resize(map, cap);
}

void kw_map_put(kw_map *map, uint64_t id, void *value) {
  assert(map->cap > map->n && value != NULL);
  kw_map_slot *slot = &map->slots[locate(map, id)];
  if (slot->value == NULL) map->n++;
  *slot = (kw_map_slot){.id = id, .value = value};
}

void *kw_map_remove(kw_map *map, uint64_t id) {
  if (map->n == 0) return NULL;
  size_t hole = locate(map, id);
  void *value = map->slots[hole].value;
  if (value == NULL) return NULL;
  const size_t mask = map->cap - 1;
  for (size_t i = (hole + 1) & mask; map->slots[i].value != NULL; i = (i + 1) & mask) {
    size_t want = home(map, map->slots[i].id);
    if (((i - want) & mask) >= ((i - hole) & mask)) { /* the hole is on its probe path */
      map->slots[hole] = map->slots[i];
      hole = i;
    }
  }
  map->slots[hole] = (kw_map_slot){0};
  map->n--;
  return value;
}

void *kw_map_next(const kw_map *map, size_t *at) {
  while (*at < map->cap) {
    void *value = map->slots[(*at)++].value;
    if (value != NULL) return value;
  }
  return NULL;
}
