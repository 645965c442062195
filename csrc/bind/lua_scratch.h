/* SPDX-License-Identifier: MIT
 *
 * lua_scratch: an arena for one call, which is not leaked if Lua raises.
 *
 * An upvalue of the function holds an idle scratch, or nil. A call takes the scratch and puts it back at its end. If
 * a finalizer calls the function during that call, it finds nil and makes a scratch of its own. If the call raises,
 * the collector frees the scratch.
 */
#ifndef KW_BIND_LUA_SCRATCH_H
#define KW_BIND_LUA_SCRATCH_H

#include "base/arena.h"
#include "base/common.h"
#include "face/compat.h"

/* Makes the class of scratches. Calling it again does nothing. */
void kw_bind_add_scratch(lua_State *L);

/* Pushes the scratch of the upvalue, or a new one, and sets the upvalue to nil. `upvalue` is the number of the
 * upvalue, from 1 on. Returns the arena of the scratch, which is valid while the scratch is on the stack. Making a
 * new one may run finalizers, and raises if memory is short. */
kw_arena *kw_bind_take_scratch(lua_State *L, int upvalue);

/* Empties the scratch at stack index `at`, and puts it back into the upvalue. The content of its arena is lost. */
void kw_bind_return_scratch(lua_State *L, int upvalue, int at);

#endif
