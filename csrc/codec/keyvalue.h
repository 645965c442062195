/* SPDX-License-Identifier: MIT
 *
 * keyvalue: mvccpb.KeyValue. A record of the store is an encoded KeyValue.
 *
 *   1 key   2 create_revision   3 mod_revision   4 version   5 value   6 lease
 *
 * The record of a put has the whole kv. The record of a delete has only the key. The key is the first field of every
 * record.
 */
#ifndef KW_CODEC_KEYVALUE_H
#define KW_CODEC_KEYVALUE_H

#include "base/chain.h"
#include "codec/wire.h"
#include "model/kv.h"

/* Returns a new blob with the encoded kv, which the caller owns; or NULL if memory is short. */
kw_blob *kw_keyvalue_encode(const kw_kv *kv);

/* Decodes a KeyValue. Key and value are slices of `bytes`. Returns false if `bytes` are malformed; kv then has the
 * fields before the fault. */
bool kw_keyvalue_decode(kw_slice bytes, kw_kv *kv);

/* Returns the size of a record without its value. */
size_t kw_keyvalue_bare_size(const kw_blob *record);

/* Copies a record without its value to `to`, a buffer of kw_keyvalue_bare_size bytes. Returns the end of the written
 * bytes. */
uint8_t *kw_keyvalue_put_bare(const kw_blob *record, uint8_t *to);

/* The smallest size of a put's record as a field of a message. */
#define KW_KEYVALUE_LEAST 11

/* Adds a record to a message, as field `number`. `is_own`: only the message will hold the record, see
 * kw_chain_add_own_blob. Returns false if memory is short: the message is then incomplete, and must be dropped. */
static inline bool kw_keyvalue_add(kw_chain *out, uint8_t number, kw_blob *record, bool is_own) {
  uint8_t *start = kw_chain_reserve(out, 1 + 10);
  if (start == NULL) return false;
  *start = KW_WIRE_TAG(number, KW_WIRE_BYTES);
  kw_chain_commit(out, (size_t)(kw_wire_put_varint(start + 1, record->len) - start));
  kw_slice bytes = kw_blob_slice(record);
  return is_own ? kw_chain_add_own_blob(out, record, bytes) : kw_chain_add_blob(out, record, bytes);
}

/* Like kw_keyvalue_add, but without the value of the record. */
bool kw_keyvalue_add_bare(kw_chain *out, uint8_t number, const kw_blob *record);

/* True if `bytes`, read from a disk, begin with a key, as every record does. */
static inline bool kw_keyvalue_has_key(kw_slice bytes) {
  size_t len = 0, at = 1; /* after the tag */
  if (bytes.len == 0 || bytes.data[0] != 10) return false;
  for (unsigned shift = 0; shift < 32 && at < bytes.len; shift += 7) {
    len |= (size_t)(bytes.data[at] & 0x7f) << shift;
    if (bytes.data[at++] < 0x80) return len > 0 && len <= bytes.len - at;
  }
  return false;
}

/* Decodes a record. If the record was damaged on the disk, returns the fields before the damage. */
static inline kw_kv kw_keyvalue_of(const kw_blob *record) {
  kw_kv kv;
  bool is_whole = kw_keyvalue_decode(kw_blob_slice(record), &kv);
  (void)is_whole;
  return kv;
}

/* Returns the key in the bytes of a record, as a slice of them. Every record was made by kw_keyvalue_encode, or checked
 * by kw_keyvalue_has_key when it was read. */
static inline kw_slice kw_keyvalue_key_in(kw_slice bytes) {
  const uint8_t *at = bytes.data + 1; /* after the tag */
  size_t len = 0;
  for (unsigned shift = 0;; shift += 7) {
    len |= (size_t)(*at & 0x7f) << shift;
    if (*at++ < 0x80) break;
  }
  return kw_slice_of(at, len);
}

/* Returns the key of a record, as a slice of it. */
static inline kw_slice kw_keyvalue_key(const kw_blob *record) {
  return kw_keyvalue_key_in(kw_blob_slice(record));
}

#endif
