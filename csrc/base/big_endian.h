/* SPDX-License-Identifier: MIT
 *
 * big_endian: numbers in bytes, the highest byte first, so that the bytes are in the order of the numbers.
 */
#ifndef KW_BASE_BIG_ENDIAN_H
#define KW_BASE_BIG_ENDIAN_H

#include "base/common.h"

/* Each puts a number, and returns what is behind it. */
static inline uint8_t *kw_big_endian_put32(uint8_t *to, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) *to++ = (uint8_t)(v >> shift);
  return to;
}

static inline uint8_t *kw_big_endian_put64(uint8_t *to, uint64_t v) {
  return kw_big_endian_put32(kw_big_endian_put32(to, (uint32_t)(v >> 32)), (uint32_t)v);
}

static inline uint32_t kw_big_endian_get32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t kw_big_endian_get64(const uint8_t *p) {
  return (uint64_t)kw_big_endian_get32(p) << 32 | kw_big_endian_get32(p + 4);
}

#endif
