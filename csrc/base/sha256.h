/* SPDX-License-Identifier: MIT
 *
 * sha256: the digest of FIPS 180-4, of bytes that come in pieces. etcd's images end with it.
 */
#ifndef KW_BASE_SHA256_H
#define KW_BASE_SHA256_H

#include "base/slice.h"

#define KW_SHA256_BYTES 32
#define KW_SHA256_BLOCK 64

typedef struct kw_sha256 {
  uint32_t state[8];
  uint64_t len;
  uint8_t rest[KW_SHA256_BLOCK]; /* of the block that is not whole yet */
} kw_sha256;

void kw_sha256_init(kw_sha256 *sha);
void kw_sha256_add(kw_sha256 *sha, kw_slice bytes);

/* The digest of all that was added, to which nothing can be added any more. */
void kw_sha256_end(kw_sha256 *sha, uint8_t digest[KW_SHA256_BYTES]);

#endif
