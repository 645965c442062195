/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "face/module.h"

void (*kw_module_probe)(lua_State *L);

void kw_pin(void *symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static bool is_published(lua_State *L, const void *functions, size_t size) {
  const void *old = lua_touserdata(L, -1);
  return old != NULL && lua_rawlen(L, -1) == size && memcmp(old, functions, size) == 0;
}

/* The reference keeps the copy alive if another build of the module replaces it later. */
void kw_publish(lua_State *L, const char *key, const void *functions, size_t size) {
  lua_getfield(L, LUA_REGISTRYINDEX, key);
  if (!is_published(L, functions, size)) {
    memcpy(lua_newuserdatauv(L, size, 0), functions, size);
    lua_pushvalue(L, -1);
    luaL_ref(L, LUA_REGISTRYINDEX);
    lua_setfield(L, LUA_REGISTRYINDEX, key);
  }
  lua_pop(L, 1);
}

void *kw_new_object(lua_State *L, const char *name, size_t size, int values) {
  void *self = lua_newuserdatauv(L, size, values);
  (void)values;
  memset(self, 0, size);
  luaL_getmetatable(L, name);
  lua_setmetatable(L, -2);
  return self;
}

void kw_add_class(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods) {
  luaL_newmetatable(L, name);
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}
