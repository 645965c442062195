/* SPDX-License-Identifier: MIT
 *
 * memory: counts the memory in use by the core, by nghttp2 and by the fuzz target itself.
 */
#ifndef KW_FUZZ_MEMORY_H
#define KW_FUZZ_MEMORY_H

#include <stddef.h>

/* Returns the bytes that were allocated since the first call, and not freed. */
size_t memory_used(void);

#endif
