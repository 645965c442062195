/* SPDX-License-Identifier: MIT */
#include "store/key_history.h"

#include "base/mem.h"

#define FIRST_CAP 2 /* of `many`: many keys are put twice, or put and deleted */

kw_key_history *kw_key_history_new(kw_slice key) {
  if (key.len > INT32_MAX) return NULL;
  kw_key_history *history = kw_alloc(sizeof *history + key.len);
  if (history == NULL) return NULL;
  *history = (kw_key_history){.key_len = (uint32_t)key.len & INT32_MAX};
  memcpy(history->key, key.data, key.len);
  return history;
}

void kw_key_history_free(kw_key_history *history) {
  if (history->cap > 0) kw_free(history->many);
  kw_free(history);
}

static kw_change *changes_of(kw_key_history *history) {
  return history->cap == 0 ? &history->one : history->many;
}

/* Moves the known changes to the front. */
static void move_to_front(kw_key_history *history) {
  kw_change *changes = changes_of(history);
  uint32_t known = history->n - history->first;
  memmove(changes, changes + history->first, known * sizeof *changes);
  history->first = 0;
  history->n = known;
}

/* If dropped changes take at least half of the array, their space is reused, so that moving is O(1) per dropped
 * change. */
bool kw_key_history_reserve(kw_key_history *history) {
  uint32_t room = history->cap == 0 ? 1 : history->cap;
  if (history->n == room && history->first > 0 && history->first >= room / 2)
    move_to_front(history);
  if (history->n < room) return true;
  if (room > UINT32_MAX / 2) return false;
  uint32_t cap = history->cap == 0 ? FIRST_CAP : history->cap * 2;
  kw_change *many = history->cap == 0 ? NULL : history->many;
  many = kw_realloc(many, cap * sizeof *many);
  if (many == NULL) return false;
  if (history->cap == 0) many[0] = history->one;
  history->many = many;
  history->cap = cap;
  return true;
}

void kw_key_history_push(kw_key_history *history, kw_change change) {
  changes_of(history)[history->n++] = change;
}

/* The last known change moves into the struct; at most one is known. */
static void free_many(kw_key_history *history) {
  kw_change *many = history->many;
  if (history->n > 0) history->one = many[0];
  history->cap = 0;
  kw_free(many);
}

/* Halves the array while at most a quarter of it is in use: amortized, removing a change is O(1). */
static void shrink(kw_key_history *history) {
  uint32_t known = history->n - history->first, cap = history->cap / 2;
  if (known == 0) history->first = history->n = 0;
  if (history->cap == 0 || (known > 1 && known > history->cap / 4)) return;
  move_to_front(history);
  if (known <= 1) {
    free_many(history);
    return;
  }
  kw_change *many = kw_realloc(history->many, cap * sizeof *many);
  if (many == NULL) return; /* the array only stays larger than necessary */
  history->many = many;
  history->cap = cap;
}

void kw_key_history_pop(kw_key_history *history) {
  assert(history->n > history->first);
  history->n--;
  shrink(history);
}

void kw_key_history_drop_first(kw_key_history *history) {
  assert(history->n > history->first);
  history->first++;
  shrink(history);
}

const kw_change *kw_key_history_at(const kw_key_history *history, int64_t rev) {
  const kw_change *changes = kw_key_history_changes(history);
  uint32_t low = history->first, high = history->n;
  if (low == high) return NULL;
  if (changes[high - 1].main <= rev) return &changes[high - 1];
  while (low < high) { /* changes before low are <= rev, changes from high on are later */
    uint32_t mid = low + (high - low) / 2;
    if (changes[mid].main <= rev) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low == history->first ? NULL : &changes[low - 1];
}
