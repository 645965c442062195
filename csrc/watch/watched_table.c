/* SPDX-License-Identifier: MIT */
#include "watch/watched_table.h"

#include "base/mem.h"

#define FIRST_CAP 16

static uint8_t tag_of(uint32_t hash) {
  return (uint8_t)(hash >> 25) | 0x80;
}

void kw_watched_table_drop(kw_watched_table *slots) {
  kw_free(slots->places);
  kw_free(slots->tags);
  *slots = (kw_watched_table){0};
}

kw_watched *kw_watched_table_find(const kw_watched_table *slots, kw_slice bytes, uint32_t hash) {
  if (slots->n == 0) return NULL;
  const size_t mask = slots->cap - 1;
  const uint8_t tag = tag_of(hash);
  for (size_t i = hash & mask; slots->tags[i] != 0; i = (i + 1) & mask) {
    if (slots->tags[i] != tag) continue;
    kw_watched *slot = slots->places[i];
    if (slot->hash == hash && slot->len == bytes.len &&
        memcmp(slot->first->bytes, bytes.data, bytes.len) == 0) {
      return slot;
    }
  }
  return NULL;
}

bool kw_watched_table_reserve(kw_watched_table *slots) {
  if ((slots->n + 1) * 4 <= slots->cap * 3) return true;
  kw_watched_table grown = {.cap = slots->cap == 0 ? FIRST_CAP : slots->cap * 2};
  grown.places = kw_alloc(grown.cap * sizeof *grown.places);
  grown.tags = kw_alloc_zeroed(grown.cap);
  if (grown.places == NULL || grown.tags == NULL) {
    kw_watched_table_drop(&grown);
    return false;
  }
  for (size_t i = 0; i < slots->cap; i++) {
    if (slots->tags[i] != 0) kw_watched_table_add(&grown, slots->places[i]);
  }
  kw_watched_table_drop(slots);
  *slots = grown;
  return true;
}

void kw_watched_table_add(kw_watched_table *slots, kw_watched *slot) {
  const size_t mask = slots->cap - 1;
  size_t i = slot->hash & mask;
  while (slots->tags[i] != 0) i = (i + 1) & mask;
  slots->places[i] = slot;
  slots->tags[i] = tag_of(slot->hash);
  slots->n++;
}

static size_t place_of(const kw_watched_table *slots, const kw_watched *slot) {
  size_t i = slot->hash & (slots->cap - 1);
  while (slots->places[i] != slot) i = (i + 1) & (slots->cap - 1);
  return i;
}

/* What stood behind the slot only because of it moves back. */
void kw_watched_table_remove(kw_watched_table *slots, const kw_watched *slot) {
  const size_t mask = slots->cap - 1;
  size_t hole = place_of(slots, slot);
  for (size_t i = (hole + 1) & mask; slots->tags[i] != 0; i = (i + 1) & mask) {
    size_t want = slots->places[i]->hash & mask;
    if (((i - want) & mask) >= ((i - hole) & mask)) {
      slots->places[hole] = slots->places[i];
      slots->tags[hole] = slots->tags[i];
      hole = i;
    }
  }
  slots->tags[hole] = 0;
  slots->n--;
}

void kw_watched_table_replace(kw_watched_table *slots, const kw_watched *slot, kw_watched *other) {
  slots->places[place_of(slots, slot)] = other;
}
