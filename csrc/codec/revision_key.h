/* SPDX-License-Identifier: MIT
 *
 * revision_key: a revision, encoded as in etcd's database. It is the key of a record in an image, and a part of what
 * HashKV hashes.
 *
 *   main (8 bytes, big-endian)  "_"  sub (8 bytes, big-endian)  "t", only for a tombstone
 *
 * The bytes are in the order of the revisions.
 */
#ifndef KW_CODEC_REVISION_KEY_H
#define KW_CODEC_REVISION_KEY_H

#include "base/big_endian.h"
#include "base/slice.h"
#include "model/kv.h"

#define KW_REVISION_KEY_BYTES 17                         /* of a revision without the "t" */
#define KW_REVISION_KEY_ROOM (KW_REVISION_KEY_BYTES + 1) /* with the "t" */

/* Encodes a revision into `bytes`. Returns the part of `bytes` that was written. */
static inline kw_slice kw_revision_key_put(uint8_t bytes[KW_REVISION_KEY_ROOM], kw_revision rev,
                                           bool tombstone) {
  uint8_t *to = kw_big_endian_put64(bytes, (uint64_t)rev.main);
  *to++ = '_';
  to = kw_big_endian_put64(to, rev.sub);
  if (tombstone) *to++ = 't';
  return kw_slice_of(bytes, (size_t)(to - bytes));
}

/* Decodes a key. Returns false, and leaves *rev unchanged, if the key is malformed, or if main is above KW_MAX_REVISION
 * or sub above KW_MAX_SUB. */
static inline bool kw_revision_key_get(kw_slice key, kw_revision *rev, bool *tombstone) {
  *tombstone = key.len == KW_REVISION_KEY_ROOM && key.data[KW_REVISION_KEY_BYTES] == 't';
  if ((key.len != KW_REVISION_KEY_BYTES && !*tombstone) || key.data[8] != '_') return false;
  uint64_t main = kw_big_endian_get64(key.data), sub = kw_big_endian_get64(key.data + 9);
  if (main > KW_MAX_REVISION || sub > KW_MAX_SUB) return false;
  *rev = (kw_revision){.main = (int64_t)main, .sub = (uint32_t)sub};
  return true;
}

#endif
