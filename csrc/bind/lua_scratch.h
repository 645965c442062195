/* SPDX-License-Identifier: MIT
 *
 * lua_scratch: an arena and a chain for the temporary memory of one call, which do not leak if the call raises. A
 * *scratch* is the userdata that owns both.
 *
 * An upvalue of the called function is an unused scratch, or nil. The function takes the scratch, and puts it back
 * before it returns. If a finalizer calls the function during that time, the second call finds nil, and creates a
 * scratch of its own. If a call raises, the collector frees its scratch.
 */
#ifndef KW_BIND_LUA_SCRATCH_H
#define KW_BIND_LUA_SCRATCH_H

#include "base/arena.h"
#include "base/chain.h"
#include "face/compat.h"

/* Creates the class of scratches. A second call does nothing. */
void kw_bind_add_scratch(lua_State *L);

/* Pushes the scratch of the upvalue, or a new one, and sets the upvalue to nil. `upvalue` is the number of the
 * upvalue, from 1 on. Returns the arena of the scratch, which is valid while the scratch is on the stack. Making a
 * new scratch may run finalizers, and raises if memory is short. */
kw_arena *kw_bind_take_scratch(lua_State *L, int upvalue);

/* Returns the chain of the scratch with an arena, valid as long as the arena. The chain has no account. */
kw_chain *kw_bind_scratch_chain(kw_arena *arena);

/* Empties the scratch at stack index `at`, and puts it back into the upvalue. The content of its arena and of its chain
 * is lost. */
void kw_bind_return_scratch(lua_State *L, int upvalue, int at);

#endif
