/* SPDX-License-Identifier: MIT */
#include "watch/watched_table.h"

#include "base/hash.h"
#include "base/mem.h"

#define FIRST_CAP 16

static uint8_t tag_of(uint32_t hash) {
  return (uint8_t)(hash >> 25) | 0x80;
}

void kw_watched_table_drop(kw_watched_table *table) {
  kw_free(table->slots);
  kw_free(table->tags);
  *table = (kw_watched_table){0};
}

kw_watched *kw_watched_table_find(const kw_watched_table *table, kw_slice bytes, uint32_t hash) {
  if (table->n == 0) return NULL;
  const size_t mask = table->cap - 1;
  const uint8_t tag = tag_of(hash);
  for (size_t i = hash & mask; table->tags[i] != 0; i = (i + 1) & mask) {
    KW_VISIT();
    if (table->tags[i] != tag) continue;
    kw_watched *watched = table->slots[i];
    if (watched->hash == hash && watched->len == bytes.len &&
        memcmp(watched->first->bytes, bytes.data, bytes.len) == 0) {
      return watched;
    }
  }
  return NULL;
}

/* Moves all ranges to a table of another size. Returns false if memory is short. */
static bool resize(kw_watched_table *table, size_t cap) {
  kw_watched_table resized = {.cap = cap};
  resized.slots = kw_alloc(cap * sizeof *resized.slots);
  resized.tags = kw_alloc_zeroed(cap);
  if (resized.slots == NULL || resized.tags == NULL) {
    kw_watched_table_drop(&resized);
    return false;
  }
  for (size_t i = 0; i < table->cap; i++) {
    if (table->tags[i] != 0) kw_watched_table_add(&resized, table->slots[i]);
  }
  kw_watched_table_drop(table);
  *table = resized;
  return true;
}

bool kw_watched_table_reserve(kw_watched_table *table) {
  if ((table->n + 1) * 4 <= table->cap * 3) return true;
  return resize(table, table->cap == 0 ? FIRST_CAP : table->cap * 2);
}

void kw_watched_table_add(kw_watched_table *table, kw_watched *watched) {
  const size_t mask = table->cap - 1;
  size_t i = watched->hash & mask;
  for (; table->tags[i] != 0; i = (i + 1) & mask) KW_VISIT();
  table->slots[i] = watched;
  table->tags[i] = tag_of(watched->hash);
  table->n++;
}

static size_t position_of(const kw_watched_table *table, const kw_watched *watched) {
  size_t i = watched->hash & (table->cap - 1);
  while (table->slots[i] != watched) i = (i + 1) & (table->cap - 1);
  return i;
}

/* Moves ranges further along the probe sequence back into the hole, so that no search ends too early. */
void kw_watched_table_remove(kw_watched_table *table, const kw_watched *watched) {
  const size_t mask = table->cap - 1;
  size_t hole = position_of(table, watched);
  for (size_t i = (hole + 1) & mask; table->tags[i] != 0; i = (i + 1) & mask) {
    size_t want = table->slots[i]->hash & mask;
    if (((i - want) & mask) >= ((i - hole) & mask)) {
      table->slots[hole] = table->slots[i];
      table->tags[hole] = table->tags[i];
      hole = i;
    }
  }
  table->tags[hole] = 0;
  table->n--;
  if (table->cap > FIRST_CAP && table->n <= table->cap / 8) resize(table, table->cap / 4);
}

void kw_watched_table_replace(kw_watched_table *table, const kw_watched *watched,
                              kw_watched *other) {
  table->slots[position_of(table, watched)] = other;
}
