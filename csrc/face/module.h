/* SPDX-License-Identifier: MIT
 *
 * module: what every shared object does first when it is loaded.
 */
#ifndef KW_FACE_MODULE_H
#define KW_FACE_MODULE_H

#include "face/compat.h"

/* The object of one VM may be met by another, since both look for Lua 5.1 in the same places. Only what every
 * VM has may be used until this is settled. */
static inline void kw_check_vm(lua_State *L) {
#if !KW_INTEGERS
  lua_getfield(L, LUA_GLOBALSINDEX, "jit");
  bool is_luajit = !lua_isnil(L, -1);
  lua_settop(L, -2);
  if (!is_luajit) luaL_error(L, "%s", KW_NEEDS_VM);
#else
  (void)L;
#endif
}

/* A class of objects: a metatable under a name of the registry, with methods. */
__attribute__((visibility("hidden"))) void
kw_add_class(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods);

/* LuaJIT unloads modules at its end before the finalizers of older objects have run: the object that holds `symbol`
 * stays. */
__attribute__((visibility("hidden"))) void kw_pin(void *symbol);

#endif
