/* SPDX-License-Identifier: MIT
 *
 * big_endian: numbers as bytes, the highest byte first. So the encoded bytes sort like the unsigned numbers.
 */
#ifndef KW_BASE_BIG_ENDIAN_H
#define KW_BASE_BIG_ENDIAN_H

#include "base/common.h"

/* Writes 4 bytes. Returns the end of what was written. */
static inline uint8_t *kw_big_endian_put32(uint8_t *to, uint32_t v) {
  to[0] = (uint8_t)(v >> 24);
  to[1] = (uint8_t)(v >> 16);
  to[2] = (uint8_t)(v >> 8);
  to[3] = (uint8_t)v;
  return to + 4;
}

/* Writes 8 bytes. Returns the end of what was written. */
static inline uint8_t *kw_big_endian_put64(uint8_t *to, uint64_t v) {
  return kw_big_endian_put32(kw_big_endian_put32(to, (uint32_t)(v >> 32)), (uint32_t)v);
}

/* Reads 4 bytes. */
static inline uint32_t kw_big_endian_get32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads 8 bytes. */
static inline uint64_t kw_big_endian_get64(const uint8_t *p) {
  return (uint64_t)kw_big_endian_get32(p) << 32 | kw_big_endian_get32(p + 4);
}

#endif
