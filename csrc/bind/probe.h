/* SPDX-License-Identifier: MIT
 *
 * probe: functions for tests, in builds with -DKW_PROBE: they check invariants, and let allocations fail.
 */
#ifndef KW_BIND_PROBE_H
#define KW_BIND_PROBE_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes the table core.probe. It has the functions of the other probe_ headers, and
 *   check(store)           raises if an invariant of the store or its hub is broken
 *   fail_core(n)           the n-th allocation of core from now on fails, and only that one; 0: none
 *   fail_all(n)            the n-th allocation of core or Lua from now on and all later ones fail; 0: none
 *   fail_none()            ends both
 *   collect_at(n, every)   a collection is due at the n-th allocation of Lua; at once if n is 0. With `every`, another
 *                          one is due after each `every` allocations more
 *   collect_never()        ends that. Returns true if the collection of collect_at(n) has not become due
 *   allocations()          returns the number of allocations of this thread so far
 *   hash_visits()          returns the number of slots of hash tables that this thread has looked at so far
 *   snapshot_waits()       returns how often a store has waited for the thread of a snapshot
 *   live()                 returns the number of blocks of all threads that are not freed yet */
void kw_bind_push_probe(lua_State *L);
#endif

#endif
