/* SPDX-License-Identifier: MIT
 *
 * hook: macros that builds for tests (-DKW_PROBE) replace, by those of probe/hook.h. No other build has the files of
 * csrc/probe.
 */
#ifndef KW_BASE_HOOK_H
#define KW_BASE_HOOK_H

#ifdef KW_PROBE
#include "probe/hook.h"
#else

/* A limit: `usual`, or `small` in builds for tests, so that tests reach it. */
#define KW_LIMIT(usual, small) (usual)

/* Runs when a search in a hash table examines a slot. Builds for tests count the slots. */
#define KW_VISIT() ((void)0)

/* The functions that mem.h calls. */
#define KW_MALLOC malloc
#define KW_CALLOC calloc
#define KW_REALLOC realloc
#define KW_FREE free

#endif

#endif
