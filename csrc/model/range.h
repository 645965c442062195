/* SPDX-License-Identifier: MIT
 *
 * range: a range of keys, written as in etcd.
 *
 *   end is empty   only the key `key`
 *   end is "\0"    all keys from `key` on
 *   else           all keys k with key <= k < end; none if end <= key
 */
#ifndef KW_MODEL_RANGE_H
#define KW_MODEL_RANGE_H

#include "model/kv.h"

typedef struct kw_range {
  kw_slice key;
  kw_slice end;
} kw_range;

/* True if the range is one key. */
static inline bool kw_range_is_point(const kw_range *range) {
  return range->end.len == 0;
}

/* True if the range has no end. */
static inline bool kw_range_is_open(const kw_range *range) {
  return range->end.len == 1 && range->end.data[0] == 0;
}

/* True if `key`, which is not below range->key, is in the range. */
static inline bool kw_range_reaches(const kw_range *range, kw_slice key) {
  if (kw_range_is_point(range)) return kw_slice_equal(range->key, key);
  return kw_range_is_open(range) || kw_slice_compare(key, range->end) < 0;
}

/* True if `key` is in the range. */
static inline bool kw_range_contains(const kw_range *range, kw_slice key) {
  return kw_slice_compare(range->key, key) <= 0 && kw_range_reaches(range, key);
}

/* True if a server can have a kv like this in the range at a revision. */
static inline bool kw_kv_is_sound(const kw_kv *kv, const kw_range *range, int64_t rev) {
  return kv->key.len > 0 && kv->create_revision >= 1 && kv->version >= 1 &&
         kv->mod_revision >= kv->create_revision && kv->mod_revision <= rev &&
         kw_range_contains(range, kv->key);
}

/* Copies the key, then the end, to `to`, which has room for both. Returns the range of the copy. */
static inline kw_range kw_range_copy(const kw_range *range, uint8_t *to) {
  uint8_t *end = to + range->key.len;
  if (range->key.len > 0) memcpy(to, range->key.data, range->key.len);
  if (range->end.len > 0) memcpy(end, range->end.data, range->end.len);
  return (kw_range){.key = {to, range->key.len}, .end = {end, range->end.len}};
}

#endif
