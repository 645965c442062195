/* SPDX-License-Identifier: MIT
 *
 * hook: what builds for tests put in the place of the hooks of base/hook.h.
 */
#ifndef KW_PROBE_HOOK_H
#define KW_PROBE_HOOK_H

#define KW_LIMIT(usual, small) (small)

extern _Thread_local size_t
    kw_hash_visits; /* slots of hash tables that this thread has looked at */

#define KW_VISIT() ((void)kw_hash_visits++)

/* These have the contracts of malloc, calloc, realloc and free. They count allocations, and fail those that probe/mem.h
 * has chosen. */
void *kw_probe_malloc(size_t size);
void *kw_probe_calloc(size_t n, size_t size);
void *kw_probe_realloc(void *p, size_t size);
void kw_probe_free(void *p);

#define KW_MALLOC kw_probe_malloc
#define KW_CALLOC kw_probe_calloc
#define KW_REALLOC kw_probe_realloc
#define KW_FREE kw_probe_free

#endif
