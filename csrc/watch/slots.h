/* SPDX-License-Identifier: MIT
 *
 * slots: a hash table of slots by the bytes that their ranges begin with. For the group only.
 *
 * Beside each place stands one byte of the hash that it holds, so that to find nothing costs, most often, one look
 * into a small array.
 */
#ifndef KW_WATCH_SLOTS_H
#define KW_WATCH_SLOTS_H

#include "watch/group.h"

typedef struct kw_slots {
  kw_slot **places;
  uint8_t *tags; /* 0: free */
  size_t n;
  size_t cap; /* a power of two, or 0 */
} kw_slots;

/* An all-zero table is empty and ready for use. */
void kw_slots_drop(kw_slots *slots);

kw_slot *kw_slots_find(const kw_slots *slots, kw_slice bytes, uint32_t hash);

/* Makes room for one more, so that the next add cannot fail; false if memory is short. */
bool kw_slots_reserve(kw_slots *slots);
void kw_slots_add(kw_slots *slots, kw_slot *slot);
void kw_slots_remove(kw_slots *slots, const kw_slot *slot);

/* Puts another slot with the same bytes and hash into the place of one. */
void kw_slots_replace(kw_slots *slots, const kw_slot *slot, kw_slot *other);

#endif
