/* SPDX-License-Identifier: MIT
 *
 * core: the module keywatch.core.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "bind/lua_store.h"
#include "model/error.h"

#ifdef KW_PROBE
#include "bind/probe.h"
#endif

int KW_EXPORT luaopen_keywatch_core(lua_State *L);

/* The object of one VM may be met by another, since both look for Lua 5.1 in the same places. Only what every
 * VM has may be used until this is settled. */
static void check_vm(lua_State *L) {
#if !KW_INTEGERS
  lua_getfield(L, LUA_GLOBALSINDEX, "jit");
  bool is_luajit = !lua_isnil(L, -1);
  lua_settop(L, -2);
  if (!is_luajit) luaL_error(L, "%s", KW_NEEDS_VM);
#else
  (void)L;
#endif
}

/* LuaJIT unloads modules at its end before the finalizers of older objects have run: stay. */
static void pin(void) {
  Dl_info info;
  if (dladdr((void *)luaopen_keywatch_core, &info) == 0) return;
  dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/* errors[code] = { message =, grpc_status = }, for those who meet them elsewhere. */
static void push_errors(lua_State *L) {
  lua_newtable(L);
#define X(name, symbol, status, words)                                                             \
  lua_newtable(L);                                                                                 \
  lua_pushliteral(L, words);                                                                       \
  lua_setfield(L, -2, "message");                                                                  \
  lua_pushinteger(L, status);                                                                      \
  lua_setfield(L, -2, "grpc_status");                                                              \
  lua_setfield(L, -2, symbol);
  KW_ERRORS(X)
#undef X
}

int luaopen_keywatch_core(lua_State *L) {
  check_vm(L);
  pin();
  lua_newtable(L);
  kw_bind_push_store(L);
  lua_setfield(L, -3, "store_methods");
  lua_setfield(L, -2, "open");
  push_errors(L);
  lua_setfield(L, -2, "errors");
  lua_pushliteral(L, KW_LUA_NAME);
  lua_setfield(L, -2, "built_for");
#ifdef KW_PROBE
  kw_bind_push_probe(L);
  lua_setfield(L, -2, "probe");
#endif
  return 1;
}
