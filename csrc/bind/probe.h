/* SPDX-License-Identifier: MIT
 *
 * probe: functions for tests, in builds with -DKW_PROBE: they check invariants, and let allocations fail.
 */
#ifndef KW_BIND_PROBE_H
#define KW_BIND_PROBE_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes core.probe. */
void kw_bind_push_probe(lua_State *L);
#endif

#endif
