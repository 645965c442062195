/* SPDX-License-Identifier: MIT
 *
 * sha1: the digest of FIPS 180-4. etcd makes the ids of members with it; it is no protection against anybody.
 */
#ifndef KW_BASE_SHA1_H
#define KW_BASE_SHA1_H

#include "base/slice.h"

#define KW_SHA1_BYTES 20

void kw_sha1(kw_slice bytes, uint8_t digest[KW_SHA1_BYTES]);

#endif
