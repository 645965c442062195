/* SPDX-License-Identifier: MIT */
#include "store/kept.h"

#include "base/mem.h"
#include "model/error.h"

bool kw_kept_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name) {
  uint8_t *bytes = kw_arena_alloc(arena, table.len + 1 + key.len);
  if (bytes == NULL) return false;
  memcpy(bytes, table.data, table.len); /* the arena's memory is zeroed */
  if (key.len > 0) memcpy(bytes + table.len + 1, key.data, key.len);
  *name = kw_slice_of(bytes, table.len + 1 + key.len);
  return true;
}

size_t kw_kept_seek(const kw_kept *kept, kw_slice name) {
  size_t low = 0, high = kept->n;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_slice_compare(kw_blob_slice(kept->states[mid].name), name) < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

const kw_kept_state *kw_kept_find(const kw_kept *kept, kw_slice name) {
  size_t at = kw_kept_seek(kept, name);
  bool is_there = at < kept->n && kw_slice_equal(kw_blob_slice(kept->states[at].name), name);
  return is_there ? &kept->states[at] : NULL;
}

static size_t cost_of(kw_slice name, kw_slice bytes) {
  return sizeof(kw_kept_state) + 2 * sizeof(kw_blob) + name.len + bytes.len;
}

static size_t state_cost(const kw_kept_state *state) {
  return cost_of(kw_blob_slice(state->name), kw_blob_slice(state->bytes));
}

static void release(kw_kept *kept, const kw_kept_state *state) {
  kept->bytes -= state_cost(state);
  kw_blob_release(state->name);
  kw_blob_release(state->bytes);
}

static void erase(kw_kept *kept, size_t at) {
  release(kept, &kept->states[at]);
  kept->n--;
  memmove(&kept->states[at], &kept->states[at + 1], (kept->n - at) * sizeof kept->states[0]);
}

static bool make_state(kw_slice name, kw_slice bytes, kw_kept_state *state) {
  state->name = kw_blob_copy(name);
  state->bytes = state->name == NULL ? NULL : kw_blob_copy(bytes);
  if (state->bytes == NULL && state->name != NULL) kw_blob_release(state->name);
  return state->bytes != NULL;
}

static int put(kw_kept *kept, size_t at, bool is_there, const kw_kept_change *change) {
  kw_kept_state state;
  size_t others = kept->bytes - (is_there ? state_cost(&kept->states[at]) : 0);
  size_t cost = cost_of(change->name, change->bytes);
  if (cost > KW_KEPT_BYTES || others + cost > KW_KEPT_BYTES) return KW_ERR_NO_SPACE;
  if (!kw_reserve(&kept->states, &kept->cap, kept->n + 1, sizeof *kept->states) ||
      !make_state(change->name, change->bytes, &state))
    return KW_ERR_NO_MEMORY;
  if (is_there) erase(kept, at);
  memmove(&kept->states[at + 1], &kept->states[at], (kept->n - at) * sizeof kept->states[0]);
  kept->states[at] = state;
  kept->n++;
  kept->bytes = others + cost;
  return KW_OK;
}

int kw_kept_apply(kw_kept *kept, const kw_kept_change *change) {
  if (change->name.len > KW_KEPT_NAME_BYTES) return KW_ERR_REQUEST_TOO_LARGE;
  size_t at = kw_kept_seek(kept, change->name);
  bool is_there = kw_kept_find(kept, change->name) != NULL;
  if (!change->is_erased) return put(kept, at, is_there, change);
  if (is_there) erase(kept, at);
  return KW_OK;
}

bool kw_kept_copy(const kw_kept *kept, kw_kept *copy) {
  *copy = (kw_kept){.bytes = kept->bytes};
  if (!kw_reserve(&copy->states, &copy->cap, kept->n + 1, sizeof *copy->states)) return false;
  for (; copy->n < kept->n; copy->n++) {
    const kw_kept_state *state = &kept->states[copy->n];
    copy->states[copy->n] =
        (kw_kept_state){kw_blob_retain(state->name), kw_blob_retain(state->bytes)};
  }
  return true;
}

void kw_kept_drop(kw_kept *kept) {
  while (kept->n > 0) release(kept, &kept->states[--kept->n]);
  kw_free(kept->states);
  *kept = (kw_kept){0};
}
