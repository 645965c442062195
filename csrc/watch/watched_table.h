/* SPDX-License-Identifier: MIT
 *
 * slots: a hash table of slots by the bytes that their ranges begin with. For the group only.
 *
 * Beside each place stands one byte of the hash that it holds, so that to find nothing costs, most often, one look
 * into a small array.
 */
#ifndef KW_WATCH_WATCHED_TABLE_H
#define KW_WATCH_WATCHED_TABLE_H

#include "watch/watch_group.h"

typedef struct kw_watched_table {
  kw_watched **places;
  uint8_t *tags; /* 0: free */
  size_t n;
  size_t cap; /* a power of two, or 0 */
} kw_watched_table;

/* An all-zero table is empty and ready for use. */
void kw_watched_table_drop(kw_watched_table *slots);

kw_watched *kw_watched_table_find(const kw_watched_table *slots, kw_slice bytes, uint32_t hash);

/* Makes room for one more, so that the next add cannot fail; false if memory is short. */
bool kw_watched_table_reserve(kw_watched_table *slots);
void kw_watched_table_add(kw_watched_table *slots, kw_watched *slot);
void kw_watched_table_remove(kw_watched_table *slots, const kw_watched *slot);

/* Puts another slot with the same bytes and hash into the place of one. */
void kw_watched_table_replace(kw_watched_table *slots, const kw_watched *slot, kw_watched *other);

#endif
