/* SPDX-License-Identifier: MIT */
#include "base/map.h"

#include "base/hash.h"
#include "base/mem.h"

#define KEEP_CAP 16 /* a map of this size does not shrink */
#define FIRST_CAP 2 /* most maps stay small: the keys of a lease, the watchers of a stream */
#define STEPWISE_CAP KW_LIMIT(16384, 16) /* a table of this size grows in steps */

/* Slots of the previous table that a put examines. So all ids have moved long before the table is full. */
#define MOVES 16

/* The ids that have not moved yet since the map has grown. They move by whole clusters, which are runs of occupied
 * slots: a search that begins in another cluster does not need them. */
typedef struct kw_map_rest {
  kw_map table;
  size_t at; /* a free slot, or the first slot of a cluster */
} kw_map_rest;

static size_t home(const kw_map *map, uint64_t id) {
  return (size_t)kw_hash_number(id, map->seed) & (map->cap - 1);
}

/* Returns the slot of an id, or the free slot where the id would go. The table always has a free slot. */
static size_t locate(const kw_map *map, uint64_t id) {
  size_t i = home(map, id);
  for (; map->slots[i].value != NULL && map->slots[i].id != id; i = (i + 1) & (map->cap - 1))
    KW_VISIT();
  return i;
}

static void drop_rest(kw_map *map) {
  if (map->rest == NULL) return;
  kw_free(map->rest->table.slots);
  kw_free(map->rest);
  map->rest = NULL;
}

void kw_map_drop(kw_map *map) {
  drop_rest(map);
  kw_free(map->slots);
  *map = (kw_map){.seed = map->seed};
}

/* Returns the slot of an id, or NULL. */
static kw_map_slot *find(const kw_map *map, uint64_t id) {
  if (map->n == 0) return NULL;
  kw_map_slot *slot = &map->slots[locate(map, id)];
  if (slot->value != NULL) return slot;
  return map->rest == NULL ? NULL : find(&map->rest->table, id);
}

void *kw_map_get(const kw_map *map, uint64_t id) {
  const kw_map_slot *slot = find(map, id);
  return slot == NULL ? NULL : slot->value;
}

static bool has_room(size_t n, size_t cap) {
  return n * 4 <= cap * 3;
}

/* Adds an id that the table does not have. */
static void add(kw_map *map, kw_map_slot slot) {
  map->slots[locate(map, slot.id)] = slot;
}

static void add_all(kw_map *map, const kw_map *from) {
  for (size_t i = 0; i < from->cap; i++) {
    if (from->slots[i].value != NULL) add(map, from->slots[i]);
  }
}

/* Moves all ids to a table of another size. Returns false if memory is short. */
static bool resize(kw_map *map, size_t cap) {
  kw_map resized = {.seed = map->seed, .n = map->n, .cap = cap};
  resized.slots = kw_alloc_zeroed(cap * sizeof *resized.slots);
  if (resized.slots == NULL) return false;
  add_all(&resized, map);
  if (map->rest != NULL) add_all(&resized, &map->rest->table);
  kw_map_drop(map);
  *map = resized;
  return true;
}

/* Gives the map a table of another size. The ids move later. Returns false if memory is short. */
static bool begin_moving(kw_map *map, size_t cap) {
  kw_map_rest *rest = kw_alloc(sizeof *rest);
  kw_map_slot *slots = kw_alloc_zeroed(cap * sizeof *slots);
  if (rest == NULL || slots == NULL) {
    kw_free(rest);
    kw_free(slots);
    return false;
  }
  *rest = (kw_map_rest){.table = *map};
  while (map->slots[rest->at].value != NULL) rest->at++;
  *map = (kw_map){.seed = map->seed, .slots = slots, .n = map->n, .cap = cap, .rest = rest};
  return true;
}

/* Moves ids until MOVES slots were examined, and the last one was free: so no cluster is moved in part. */
static void move_some(kw_map *map) {
  kw_map *from = &map->rest->table;
  bool was_free = false;
  for (size_t i = 0; from->n > 0 && (i < MOVES || !was_free); i++) {
    kw_map_slot *slot = &from->slots[map->rest->at];
    was_free = slot->value == NULL;
    if (!was_free) {
      add(map, *slot);
      *slot = (kw_map_slot){0};
      from->n--;
    }
    map->rest->at = (map->rest->at + 1) & (from->cap - 1);
  }
  if (from->n == 0) drop_rest(map);
}

bool kw_map_reserve(kw_map *map) {
  if (has_room(map->n + 1, map->cap)) return true;
  if (map->cap >= STEPWISE_CAP && map->rest == NULL) return begin_moving(map, map->cap * 2);
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
  if (map->rest != NULL) move_some(map);
  kw_map_slot *slot = &map->slots[locate(map, id)], *before = NULL;
  if (slot->value == NULL && map->rest != NULL) before = find(&map->rest->table, id);
  if (before != NULL) slot = before;
  if (slot->value == NULL) map->n++;
  *slot = (kw_map_slot){.id = id, .value = value};
}

/* Frees a slot, and shifts the later slots that searches can reach only through it. */
static void free_slot(kw_map *table, size_t hole) {
  const size_t mask = table->cap - 1;
  for (size_t i = (hole + 1) & mask; table->slots[i].value != NULL; i = (i + 1) & mask) {
    size_t want = home(table, table->slots[i].id);
    KW_VISIT();
    if (((i - want) & mask) >= ((i - hole) & mask)) { /* the hole is on its probe path */
      table->slots[hole] = table->slots[i];
      hole = i;
    }
  }
  table->slots[hole] = (kw_map_slot){0};
  table->n--;
}

void *kw_map_remove(kw_map *map, uint64_t id) {
  if (map->n == 0) return NULL;
  size_t i = locate(map, id);
  void *value = map->slots[i].value;
  if (value != NULL) {
    free_slot(map, i);
    return value;
  }
  if (map->rest == NULL || (value = kw_map_remove(&map->rest->table, id)) == NULL) return NULL;
  map->n--;
  if (map->rest->table.n == 0) drop_rest(map);
  return value;
}

void *kw_map_next(const kw_map *map, size_t *at) {
  while (*at < map->cap) {
    void *value = map->slots[(*at)++].value;
    if (value != NULL) return value;
  }
  if (map->rest == NULL) return NULL;
  size_t rest_at = *at - map->cap;
  void *value = kw_map_next(&map->rest->table, &rest_at);
  *at = map->cap + rest_at;
  return value;
}

/* Visits the values in the first slots, up to a free one. A removal may shift such a value to the last slots. */
static void visit_first(const kw_map *table, void (*visit)(void *, void *), void *ctx) {
  for (size_t i = 0; i < table->cap && table->slots[i].value != NULL; i++)
    visit(table->slots[i].value, ctx);
}

/* Visits the previous table first, since its ids move to the new one; and each table from its last slot, since removals
 * shift values to earlier slots. */
bool kw_map_visit(const kw_map *map, size_t *at, void (*visit)(void *, void *), void *ctx) {
  const kw_map *rest = map->rest == NULL ? NULL : &map->rest->table;
  if (*at == SIZE_MAX) {
    visit_first(map, visit, ctx);
    if (rest != NULL) visit_first(rest, visit, ctx);
    *at = map->cap + (rest == NULL ? 0 : rest->cap);
    return true;
  }
  if (rest == NULL && *at > map->cap) *at = map->cap;
  if (*at == 0) return false;
  --*at;
  void *value = *at < map->cap ? map->slots[*at].value : rest->slots[*at - map->cap].value;
  if (value != NULL) visit(value, ctx);
  return true;
}
