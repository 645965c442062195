/* SPDX-License-Identifier: MIT
 *
 * memory: how much is in use, of the core, of nghttp2, and of what fuzzes them.
 */
#ifndef KW_FUZZ_MEMORY_H
#define KW_FUZZ_MEMORY_H

#include <stddef.h>

/* Bytes that were allocated since it was first called, and not freed. */
size_t memory_used(void);

#endif
