/* SPDX-License-Identifier: MIT
 *
 * lua_scratch: an arena for the length of a call, which is not lost when Lua raises.
 *
 * An upvalue of the function has one that is idle, or nil. A call takes it, so that finalizers that run meanwhile do
 * not find it and make their own, and puts it back at its end; of a call that raises it is left to the collector.
 */
#ifndef KW_BIND_LUA_SCRATCH_H
#define KW_BIND_LUA_SCRATCH_H

#include "base/arena.h"
#include "base/common.h"
#include "face/compat.h"

/* Makes the class, once for each VM. */
void kw_bind_add_scratch(lua_State *L);

/* Pushes the scratch of an upvalue, or a new one. */
kw_arena *kw_bind_take_scratch(lua_State *L, int upvalue);

/* Empties the scratch that stands at `at`, and puts it back. */
void kw_bind_return_scratch(lua_State *L, int upvalue, int at);

#endif
