/* SPDX-License-Identifier: MIT
 *
 * probe: what only tests may do, in builds with -DKW_PROBE: check invariants, and let memory run out.
 */
#ifndef KW_BIND_PROBE_H
#define KW_BIND_PROBE_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes the table of probes. */
void kw_bind_push_probe(lua_State *L);
#endif

#endif
