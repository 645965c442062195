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

/* The kv of a record that we encoded ourselves. */
static inline kw_kv kw_keyvalue_of(const kw_blob *record) {
  kw_kv kv;
  bool ok = kw_keyvalue_decode(kw_blob_slice(record), &kv);
  assert(ok);
  (void)ok;
  return kv;
}

/* The same, for the key alone: it comes first. */
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
