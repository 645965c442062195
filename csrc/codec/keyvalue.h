/* SPDX-License-Identifier: MIT
 *
 * keyvalue: mvccpb.KeyValue, which is also the record that the store holds.
 *
 *   1 key   2 create_revision   3 mod_revision   4 version   5 value   6 lease
 *
 * The record of a put is the whole kv; the record of a delete has only the key.
 */
#ifndef KW_CODEC_KEYVALUE_H
#define KW_CODEC_KEYVALUE_H

#include "base/blob.h"
#include "model/kv.h"

/* A new blob that holds the encoded kv, or NULL if memory is short. */
kw_blob *kw_keyvalue_encode(const kw_kv *kv);

/* Decodes into slices of `bytes`; false if they are malformed. */
bool kw_keyvalue_decode(kw_slice bytes, kw_kv *kv);

/* How many bytes a record takes without its value, and writing it so. */
size_t kw_keyvalue_bare_size(const kw_blob *record);
uint8_t *kw_keyvalue_put_bare(const kw_blob *record, uint8_t *to);

/* Whether bytes from a disk begin with a key, as those of every record do. */
static inline bool kw_keyvalue_has_key(kw_slice bytes) {
  size_t len = 0, at = 1; /* after the tag */
  if (bytes.len == 0 || bytes.data[0] != 10) return false;
  for (unsigned shift = 0; shift < 32 && at < bytes.len; shift += 7) {
    len |= (size_t)(bytes.data[at] & 0x7f) << shift;
    if (bytes.data[at++] < 0x80) return len > 0 && len <= bytes.len - at;
  }
  return false;
}

/* The kv of a record. Of one that a disk has damaged, the fields before the damage. */
static inline kw_kv kw_keyvalue_of(const kw_blob *record) {
  kw_kv kv;
  bool is_whole = kw_keyvalue_decode(kw_blob_slice(record), &kv);
  (void)is_whole;
  return kv;
}

/* The same, for the key alone: it comes first, which was seen to when the record was made or read. */
static inline kw_slice kw_keyvalue_key(const kw_blob *record) {
  const uint8_t *at = record->bytes + 1; /* after the tag */
  size_t len = 0;
  for (unsigned shift = 0;; shift += 7) {
    len |= (size_t)(*at & 0x7f) << shift;
    if (*at++ < 0x80) break;
  }
  return kw_slice_of(at, len);
}

#endif
