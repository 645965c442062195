/* SPDX-License-Identifier: MIT
 *
 * compat: all differences between the C APIs of Lua 5.4 and LuaJIT 2.1. It includes no other header of the core.
 */
#ifndef KW_FACE_COMPAT_H
#define KW_FACE_COMPAT_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#if LUA_VERSION_NUM == 501 && defined(__has_include)
#if __has_include(<luajit.h>)
#include <luajit.h>
#endif
#endif
#pragma GCC visibility pop

#define KW_NEEDS_VM "keywatch needs Lua 5.4 or LuaJIT 2.1: run it with lua5.4 or luajit"

#if LUA_VERSION_NUM == 504

#define KW_INTEGERS 1 /* Lua numbers hold 64-bit integers */

/* Calls a function without arguments and results. Returns 0, or another number with the raised error on the stack.
 * Nothing is allocated outside of the protected call. */
static inline int kw_protect(lua_State *L, lua_CFunction function) {
  lua_pushcfunction(L, function);
  return lua_pcall(L, 0, 0, 0);
}

#elif defined(LUAJIT_VERSION_NUM) && LUAJIT_VERSION_NUM >= 20100

#define KW_INTEGERS 0 /* Lua numbers are doubles: exact up to 2^53 */

#define lua_rawlen lua_objlen
#define lua_newuserdatauv(L, size, n) lua_newuserdata(L, size)
#define lua_setiuservalue(L, i, n) lua_setfenv(L, i) /* n is 1; the value must be a table */
#define lua_getiuservalue(L, i, n) lua_getfenv(L, i)
#define kw_protect(L, function) lua_cpcall(L, function, NULL)

/* PUC Lua 5.1 may load the object that was built for LuaJIT, and gets an error from kw_check_vm. So the object
 * must not need any symbol that PUC Lua 5.1 lacks, for example luaL_setfuncs. */
#define luaL_setfuncs kw_setfuncs

static inline void kw_setfuncs(lua_State *L, const luaL_Reg *list, int n) {
  for (; list->name != NULL; list++) {
    for (int i = 0; i < n; i++) lua_pushvalue(L, -n);
    lua_pushcclosure(L, list->func, n);
    lua_setfield(L, -(n + 2), list->name);
  }
  lua_settop(L, -(n + 1));
}

#else
#error keywatch needs Lua 5.4 or LuaJIT 2.1: luarocks --lua-version=5.4, or LUA_INCDIR= the headers of LuaJIT
#endif

#endif
