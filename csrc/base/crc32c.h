/* SPDX-License-Identifier: MIT
 *
 * crc32c: the CRC-32C (Castagnoli) checksum. Uses the instruction of the processor where there is one.
 */
#ifndef KW_BASE_CRC32C_H
#define KW_BASE_CRC32C_H

#include "base/slice.h"

/* Returns the checksum of all bytes so far and `bytes`. `crc` is the checksum of the bytes so far, 0 at the start. */
uint32_t kw_crc32c(uint32_t crc, kw_slice bytes);

#endif
