/* SPDX-License-Identifier: MIT
 *
 * compat: every difference between Lua 5.4 and LuaJIT 2.1 that C sees.
 */
#ifndef KW_FACE_COMPAT_H
#define KW_FACE_COMPAT_H

#include "base/common.h"

#pragma GCC visibility push(default)
#include <lauxlib.h>
#include <lua.h>
#if LUA_VERSION_NUM == 501 && defined(__has_include)
#if __has_include(<luajit.h>)
#include <luajit.h>
#endif
#endif
#pragma GCC visibility pop

#define KW_NEEDS_VM "keywatch needs Lua 5.4 or LuaJIT 2.1: run it with lua5.4 or luajit"

#if LUA_VERSION_NUM == 504

#define KW_LUA_NAME "Lua 5.4"
#define KW_INTEGERS 1 /* numbers hold 64-bit integers */

#elif defined(LUAJIT_VERSION_NUM) && LUAJIT_VERSION_NUM >= 20100

#define KW_LUA_NAME "LuaJIT 2.1"
#define KW_INTEGERS 0 /* numbers are doubles: exact up to 2^53 */

#define lua_rawlen lua_objlen
#define lua_newuserdatauv(L, size, n) lua_newuserdata(L, size)

#else
#error keywatch needs Lua 5.4 or LuaJIT 2.1: build it with luarocks --lua-version 5.4, or with the headers of LuaJIT
#endif

#endif
