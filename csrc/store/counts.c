/* SPDX-License-Identifier: MIT */
#include "store/counts.h"

void kw_counts_drop(kw_counts *counts) {
  for (size_t i = 0; i < KW_COUNTS; i++) {
    if (counts->all[i].bytes != NULL) kw_blob_release(counts->all[i].bytes);
  }
  *counts = (kw_counts){0};
}

void kw_counts_add(kw_counts *counts, kw_slice last, kw_slice end, int64_t revision,
                   uint64_t rewrites, int64_t count) {
  size_t key_len = last.len + 1;
  if (key_len + end.len > KW_COUNTS_KEY_MAX) return;
  kw_blob *bytes = kw_blob_new(key_len + end.len);
  if (bytes == NULL) return;
  memcpy(bytes->bytes, last.data, last.len);
  bytes->bytes[last.len] = 0;
  memcpy(bytes->bytes + key_len, end.data, end.len);
  kw_count *oldest = &counts->all[counts->next++ % KW_COUNTS];
  if (oldest->bytes != NULL) kw_blob_release(oldest->bytes);
  *oldest = (kw_count){bytes, key_len, revision, rewrites, count};
}

static bool is_of(const kw_count *c, const kw_range *range) {
  size_t len = c->bytes->len;
  if (c->key_len != range->key.len || len != range->key.len + range->end.len) return false;
  return memcmp(c->bytes->bytes, range->key.data, range->key.len) == 0 &&
         memcmp(c->bytes->bytes + c->key_len, range->end.data, range->end.len) == 0;
}

int64_t kw_counts_find(const kw_counts *counts, const kw_range *range, int64_t revision,
                       uint64_t rewrites) {
  for (size_t i = 0; i < KW_COUNTS; i++) {
    const kw_count *c = &counts->all[i];
    if (c->bytes == NULL || c->revision != revision || c->rewrites != rewrites) continue;
    if (is_of(c, range)) return c->count;
  }
  return -1;
}
