/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "face/module.h"

void kw_pin(void *symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

void kw_add_class(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods) {
  luaL_newmetatable(L, name);
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}
