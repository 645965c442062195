/* SPDX-License-Identifier: MIT */
#include "bind/lua_scratch.h"

#include "face/module.h"

#define SCRATCH_NAME "keywatch.scratch"

static int l_drop(lua_State *L) {
  kw_arena_drop(luaL_checkudata(L, 1, SCRATCH_NAME));
  return 0;
}

void kw_bind_add_scratch(lua_State *L) {
  luaL_newmetatable(L, SCRATCH_NAME);
  lua_pushcfunction(L, l_drop);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}

static kw_arena *push_new(lua_State *L) {
  kw_arena *arena = kw_new_object(L, SCRATCH_NAME, sizeof *arena, 0);
  return arena;
}

kw_arena *kw_bind_take_scratch(lua_State *L, int upvalue) {
  kw_arena *arena = lua_touserdata(L, lua_upvalueindex(upvalue));
  if (arena == NULL) return push_new(L);
  lua_pushvalue(L, lua_upvalueindex(upvalue));
  lua_pushnil(L);
  lua_replace(L, lua_upvalueindex(upvalue));
  return arena;
}

void kw_bind_return_scratch(lua_State *L, int upvalue, int at) {
  kw_arena_reset(lua_touserdata(L, at));
  lua_pushvalue(L, at);
  lua_replace(L, lua_upvalueindex(upvalue));
}
