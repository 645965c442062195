/* SPDX-License-Identifier: MIT
 *
 * lua_store: the store as a Lua object.
 */
#ifndef KW_BIND_LUA_STORE_H
#define KW_BIND_LUA_STORE_H

#include "face/compat.h"
#include "store/store.h"

/* Pushes `open`, and the table of the store's methods, to which Lua adds its own. */
void kw_bind_push_store(lua_State *L);

#ifdef KW_PROBE
/* The store of an argument, which must be an open one. */
kw_store *kw_bind_check_store(lua_State *L, int arg);
#endif

#endif
