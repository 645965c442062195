/* SPDX-License-Identifier: MIT
 *
 * mem: allocations that fail on purpose, in each thread by itself, and what is allocated.
 */
#ifndef KW_PROBE_MEM_H
#define KW_PROBE_MEM_H

#include "base/common.h"

/* Makes the n-th allocation from now on fail, and only that one. 0: none. */
void kw_mem_fail_at(size_t n);

/* Makes the n-th allocation from now on and all later ones fail. 0: none. */
void kw_mem_fail_from(size_t n);

/* Counts an allocation that is made elsewhere (by Lua). Returns true if that allocation has to fail. */
bool kw_mem_must_fail(void);

/* Returns the number of allocations of this thread so far. */
size_t kw_mem_count(void);

/* Returns the number of blocks of all threads that are not freed yet. */
size_t kw_mem_live(void);

/* Returns the bytes of these blocks. */
size_t kw_mem_bytes(void);

#endif
