/* SPDX-License-Identifier: MIT
 *
 * uv: the module keywatch.uv.
 */
#include <math.h>
#include <uv.h>

#include "base/common.h"
#include "face/module.h"
#include "uv/loop.h"

#define LOOP_NAME "keywatch.uv.loop"

int KW_EXPORT luaopen_keywatch_uv(lua_State *L);

static kw_loop **check_loop(lua_State *L) {
  return luaL_checkudata(L, 1, LOOP_NAME);
}

static int l_open(lua_State *L) {
  kw_loop **self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = NULL;
  luaL_getmetatable(L, LOOP_NAME);
  lua_setmetatable(L, -2);
  int rc = kw_loop_open(self);
  if (rc == 0) return 1;
  lua_pushnil(L);
  lua_pushfstring(L, "keywatch: no loop: %s", uv_strerror(rc));
  return 2;
}

/* loop:turn(seconds): rounded up, so that what is waited for is due afterwards; without an end if not given. */
static int l_turn(lua_State *L) {
  kw_loop **self = check_loop(L);
  int64_t ms = -1;
  if (!lua_isnoneornil(L, 2)) {
    double seconds = luaL_checknumber(L, 2);
    ms = seconds < 1e12 ? (int64_t)ceil(seconds * 1000) : INT64_MAX / 2;
    if (ms < 0) ms = 0;
  }
  if (*self == NULL) return luaL_error(L, "the loop is closed");
  kw_loop_turn(*self, ms);
  return 0;
}

static int l_close(lua_State *L) {
  kw_loop **self = check_loop(L);
  if (*self != NULL) kw_loop_close(*self);
  *self = NULL;
  return 0;
}

static int l_now(lua_State *L) {
  lua_pushnumber(L, (lua_Number)kw_loop_now() / 1e9);
  return 1;
}

static const luaL_Reg loop_methods[] = {{"turn", l_turn}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg loop_meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg functions[] = {{"open", l_open}, {"now", l_now}, {NULL, NULL}};

int luaopen_keywatch_uv(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_uv);
  luaL_newmetatable(L, LOOP_NAME);
  luaL_setfuncs(L, loop_meta, 0);
  lua_newtable(L);
  luaL_setfuncs(L, loop_methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  return 1;
}
