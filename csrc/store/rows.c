/* SPDX-License-Identifier: MIT */
#include "store/rows.h"

#include "base/mem.h"
#include "model/error.h"

bool kw_rows_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name) {
  uint8_t *bytes = kw_arena_alloc(arena, table.len + 1 + key.len);
  if (bytes == NULL) return false;
  memcpy(bytes, table.data, table.len); /* a zero byte follows: the arena's memory is zeroed */
  if (key.len > 0) memcpy(bytes + table.len + 1, key.data, key.len);
  *name = kw_slice_of(bytes, table.len + 1 + key.len);
  return true;
}

size_t kw_rows_seek(const kw_rows *rows, kw_slice name) {
  size_t low = 0, high = rows->n;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_slice_compare(kw_blob_slice(rows->items[mid].name), name) < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

const kw_row *kw_rows_find(const kw_rows *rows, kw_slice name) {
  size_t at = kw_rows_seek(rows, name);
  bool is_there = at < rows->n && kw_slice_equal(kw_blob_slice(rows->items[at].name), name);
  return is_there ? &rows->items[at] : NULL;
}

static size_t cost_of(kw_slice name, kw_slice bytes) {
  return sizeof(kw_row) + 2 * sizeof(kw_blob) + name.len + bytes.len;
}

static size_t row_cost(const kw_row *row) {
  return cost_of(kw_blob_slice(row->name), kw_blob_slice(row->bytes));
}

static void release(kw_rows *rows, const kw_row *row) {
  rows->bytes -= row_cost(row);
  kw_blob_release(row->name);
  kw_blob_release(row->bytes);
}

static void erase(kw_rows *rows, size_t at) {
  release(rows, &rows->items[at]);
  rows->n--;
  memmove(&rows->items[at], &rows->items[at + 1], (rows->n - at) * sizeof rows->items[0]);
}

static bool make_row(kw_slice name, kw_slice bytes, kw_row *row) {
  row->name = kw_blob_copy(name);
  row->bytes = row->name == NULL ? NULL : kw_blob_copy(bytes);
  if (row->bytes == NULL && row->name != NULL) kw_blob_release(row->name);
  return row->bytes != NULL;
}

static int put(kw_rows *rows, size_t at, bool is_there, const kw_row_change *change) {
  kw_row row;
  size_t others = rows->bytes - (is_there ? row_cost(&rows->items[at]) : 0);
  size_t cost = cost_of(change->name, change->bytes);
  if (cost > KW_ROWS_BYTES || others + cost > KW_ROWS_BYTES) return KW_ERR_NO_SPACE;
  if (!kw_reserve(&rows->items, &rows->cap, rows->n + 1, sizeof *rows->items) ||
      !make_row(change->name, change->bytes, &row))
    return KW_ERR_NO_MEMORY;
  if (is_there) {
    release(rows, &rows->items[at]);
  } else {
    memmove(&rows->items[at + 1], &rows->items[at], (rows->n - at) * sizeof rows->items[0]);
    rows->n++;
  }
  rows->items[at] = row;
  rows->bytes = others + cost;
  return KW_OK;
}

int kw_rows_apply(kw_rows *rows, const kw_row_change *change) {
  if (change->name.len > KW_ROW_NAME_BYTES) return KW_ERR_REQUEST_TOO_LARGE;
  size_t at = kw_rows_seek(rows, change->name);
  bool is_there = kw_rows_find(rows, change->name) != NULL;
  if (!change->is_erased) return put(rows, at, is_there, change);
  if (is_there) erase(rows, at);
  return KW_OK;
}

int kw_rows_apply_group(kw_rows *rows, const kw_commit_group *group) {
  int rc = KW_OK;
  for (size_t i = 0; i < group->n_items && group->n_rows > 0 && rc == KW_OK; i++) {
    const kw_commit_change *c = &group->items[i];
    if (c->kind != KW_COMMIT_PUT_ROW && c->kind != KW_COMMIT_REMOVE_ROW) continue;
    kw_row_change change = {.name = kw_blob_slice(c->name), .is_erased = c->row == NULL};
    if (c->row != NULL) change.bytes = kw_blob_slice(c->row);
    rc = kw_rows_apply(rows, &change);
  }
  return rc;
}

bool kw_rows_copy(const kw_rows *rows, kw_rows *copy) {
  *copy = (kw_rows){.bytes = rows->bytes};
  if (!kw_reserve(&copy->items, &copy->cap, rows->n + 1, sizeof *copy->items)) return false;
  for (; copy->n < rows->n; copy->n++) {
    const kw_row *row = &rows->items[copy->n];
    copy->items[copy->n] = (kw_row){kw_blob_retain(row->name), kw_blob_retain(row->bytes)};
  }
  return true;
}

void kw_rows_drop(kw_rows *rows) {
  while (rows->n > 0) release(rows, &rows->items[--rows->n]);
  kw_free(rows->items);
  *rows = (kw_rows){0};
}
