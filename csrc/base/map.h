/* SPDX-License-Identifier: MIT
 *
 * map: a hash table from 64-bit ids to pointers, with open addressing and linear probing.
 *
 * A slot with the value NULL is free, so NULL cannot be stored. A removal shifts following slots back. The table
 * shrinks only in kw_map_shrink, so an id that was removed can be put again without memory. Get, put and remove are
 * O(1) on average. A large table grows in steps: every put moves some ids from the previous table.
 */
#ifndef KW_BASE_MAP_H
#define KW_BASE_MAP_H

#include "base/common.h"

typedef struct kw_map_slot {
  uint64_t id;
  void *value;
} kw_map_slot;

/* An all-zero map is empty and ready for use. It borrows its values. Where a peer chooses the ids, the owner sets a
 * secret seed before the first one, see hash.h. */
typedef struct kw_map {
  uint64_t seed; /* of the hashes of the ids */
  kw_map_slot *slots;
  size_t n;                 /* number of ids, including those in `rest` */
  size_t cap;               /* number of slots: a power of two, or 0 before the first reserve */
  struct kw_map_rest *rest; /* the previous table, with the ids that have not moved yet; or NULL */
} kw_map;

/* Frees the slots, not the values. The map is then empty, and ready for use, with the same seed. */
void kw_map_drop(kw_map *map);

/* Returns the value of an id, or NULL. */
void *kw_map_get(const kw_map *map, uint64_t id);

/* Makes room for one more id. Returns false if memory is short. */
bool kw_map_reserve(kw_map *map);

/* Sets the value of an id, or replaces it. The value is not NULL. There must be room, see kw_map_reserve. */
void kw_map_put(kw_map *map, uint64_t id, void *value);

/* Removes an id. Returns its value, or NULL if it was not there. */
void *kw_map_remove(kw_map *map, uint64_t id);

/* Gives room back if the ids, and `spare` more, need at most an eighth of it, and it is more than 16 slots. Room for
 * `spare` more remains. Keeps all room if memory is short. A removal followed by a shrink is amortized O(1). */
void kw_map_shrink(kw_map *map, size_t spare);

/* Iterates over the values, in no particular order. Begin with *at = 0. Returns NULL at the end. The map must not
 * change during the iteration. */
void *kw_map_next(const kw_map *map, size_t *at);

/* Visits some more values, perhaps none, of a map that may change between calls. By the end all values that are in the
 * map from the first call to the last have been visited, some twice; some are missed if kw_map_reserve or kw_map_shrink
 * resizes the table between calls. Begin with *at = SIZE_MAX. Returns false at the end. */
bool kw_map_visit(const kw_map *map, size_t *at, void (*visit)(void *value, void *ctx), void *ctx);

#endif
