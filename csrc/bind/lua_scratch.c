/* SPDX-License-Identifier: MIT */
#include "bind/lua_scratch.h"

#include "face/module.h"

#define SCRATCH_NAME "keywatch.scratch"

typedef struct scratch {
  kw_arena arena;
  kw_chain chain;
} scratch;

static int l_drop(lua_State *L) {
  scratch *self = luaL_checkudata(L, 1, SCRATCH_NAME);
  kw_arena_drop(&self->arena);
  kw_chain_drop(&self->chain);
  return 0;
}

void kw_bind_add_scratch(lua_State *L) {
  luaL_newmetatable(L, SCRATCH_NAME);
  lua_pushcfunction(L, l_drop);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}

static kw_arena *push_new(lua_State *L) {
  scratch *self = kw_new_object(L, SCRATCH_NAME, sizeof *self, 0);
  return &self->arena;
}

kw_arena *kw_bind_take_scratch(lua_State *L, int upvalue) {
  scratch *self = lua_touserdata(L, lua_upvalueindex(upvalue));
  if (self == NULL) return push_new(L);
  lua_pushvalue(L, lua_upvalueindex(upvalue));
  lua_pushnil(L);
  lua_replace(L, lua_upvalueindex(upvalue));
  return &self->arena;
}

kw_chain *kw_bind_scratch_chain(kw_arena *arena) {
  return &KW_CONTAINER_OF(arena, scratch, arena)->chain;
}

void kw_bind_return_scratch(lua_State *L, int upvalue, int at) {
  scratch *self = lua_touserdata(L, at);
  kw_arena_reset(&self->arena);
  kw_chain_drop(&self->chain);
  lua_pushvalue(L, at);
  lua_replace(L, lua_upvalueindex(upvalue));
}
