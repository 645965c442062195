/* SPDX-License-Identifier: MIT
 *
 * crc32c: the Castagnoli checksum, by the processor's instruction where it has one.
 */
#ifndef KW_BASE_CRC32C_H
#define KW_BASE_CRC32C_H

#include "base/slice.h"

/* Extends the checksum `crc` of what came before (0 at the start) by `bytes`. */
uint32_t kw_crc32c(uint32_t crc, kw_slice bytes);

#endif
