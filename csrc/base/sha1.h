/* SPDX-License-Identifier: MIT
 *
 * sha1: the SHA-1 digest of FIPS 180-4. etcd makes the ids of members with it. SHA-1 is not secure: it protects
 * nothing.
 */
#ifndef KW_BASE_SHA1_H
#define KW_BASE_SHA1_H

#include "base/slice.h"

#define KW_SHA1_BYTES 20

/* Computes the digest of `bytes`. */
void kw_sha1(kw_slice bytes, uint8_t digest[KW_SHA1_BYTES]);

#endif
