/* SPDX-License-Identifier: MIT
 *
 * hook: where builds for tests (-DKW_PROBE) reach into the product. Their own files are in csrc/probe, which no other
 * build has.
 */
#ifndef KW_BASE_HOOK_H
#define KW_BASE_HOOK_H

#ifdef KW_PROBE
#include "probe/hook.h"
#else

/* A limit, which is small in builds for tests, so that tests reach it. */
#define KW_LIMIT(usual, small) (usual)

/* A search in a hash table looks at a slot. */
#define KW_VISIT() ((void)0)

/* What allocates and frees. */
#define KW_MALLOC malloc
#define KW_CALLOC calloc
#define KW_REALLOC realloc
#define KW_FREE free

#endif

#endif
