/* SPDX-License-Identifier: MIT
 *
 * watched_table: a hash table of watched ranges, by the first `len` bytes of each range's key: a whole key, or a stem.
 * For watch_group.c only.
 *
 * Open addressing with linear probing. Each slot has a tag, one byte of the hash, so that looking for bytes that are
 * not in the table reads, most often, one byte of a small array.
 */
#ifndef KW_WATCH_WATCHED_TABLE_H
#define KW_WATCH_WATCHED_TABLE_H

#include "watch/watch_group.h"

/* All zero, a table is empty and ready for use. */
typedef struct kw_watched_table {
  kw_watched **slots;
  uint8_t *tags; /* 0: the slot is free */
  size_t n;
  size_t cap; /* a power of two, or 0 */
} kw_watched_table;

/* Frees the table's memory, not the watched ranges. */
void kw_watched_table_drop(kw_watched_table *table);

/* Returns the watched range that is filed under `bytes`, or NULL. `hash` is the hash of the bytes, made like
 * kw_watched.hash. */
kw_watched *kw_watched_table_find(const kw_watched_table *table, kw_slice bytes, uint32_t hash);

/* Makes room for one more watched range, so that the next add cannot fail. Returns false if memory is short. */
bool kw_watched_table_reserve(kw_watched_table *table);

/* Adds a watched range. There must be room, and no range may be filed under the same bytes. */
void kw_watched_table_add(kw_watched_table *table, kw_watched *watched);

/* Removes a watched range, which must be in the table. Shrinks a table that is mostly unused, if there is memory. */
void kw_watched_table_remove(kw_watched_table *table, const kw_watched *watched);

/* Puts `other`, with the same bytes and hash, into the slot of `watched`. */
void kw_watched_table_replace(kw_watched_table *table, const kw_watched *watched,
                              kw_watched *other);

#endif
