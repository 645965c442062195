/* SPDX-License-Identifier: MIT
 *
 * sha256: the SHA-256 digest of FIPS 180-4, of bytes that come in pieces. etcd's snapshots end with it.
 */
#ifndef KW_BASE_SHA256_H
#define KW_BASE_SHA256_H

#include "base/slice.h"

#define KW_SHA256_BYTES 32
#define KW_SHA256_BLOCK 64

typedef struct kw_sha256 {
  uint32_t state[8];
  uint64_t len;                  /* bytes so far */
  uint8_t rest[KW_SHA256_BLOCK]; /* the last len % KW_SHA256_BLOCK bytes, not yet in the state */
} kw_sha256;

/* Begins a digest. */
void kw_sha256_init(kw_sha256 *sha);

/* Adds bytes. */
void kw_sha256_add(kw_sha256 *sha, kw_slice bytes);

/* Computes the digest of all bytes that were added. Nothing can be added afterwards. */
void kw_sha256_end(kw_sha256 *sha, uint8_t digest[KW_SHA256_BYTES]);

#endif
