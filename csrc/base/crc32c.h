/* SPDX-License-Identifier: MIT
 *
 * crc32c: the CRC-32C (Castagnoli) checksum. Uses the instruction of the processor where there is one.
 */
#ifndef KW_BASE_CRC32C_H
#define KW_BASE_CRC32C_H

#include "base/slice.h"

/* Returns the checksum of all bytes so far and `bytes`. `crc` is the checksum of the bytes so far, 0 at the start. */
uint32_t kw_crc32c(uint32_t crc, kw_slice bytes);

/* Corrects one wrong bit, of the bytes or of their stored checksum *crc: the bit whose flip makes kw_crc32c(0, bytes)
 * equal to *crc. There is at most one such bit. Returns false, with nothing changed, if there is none, or if `len` is
 * above KW_CRC32C_MAX_REPAIR. A bit is found in arbitrary bytes, too, by chance, in one of 2^32 / (8 * len) cases: so a
 * caller needs another sign that the corrected bytes are right. */
bool kw_crc32c_repair(uint8_t *bytes, size_t len, uint32_t *crc);

#define KW_CRC32C_MAX_REPAIR                                                                       \
  (128 << 20) /* bytes: wrong bits have different effects within 2^31 bits */

#endif
