/* SPDX-License-Identifier: MIT */
#include "bind/lua_error.h"

#include "bind/lua_value.h"
#include "model/error.h"

#define ERROR_NAME "keywatch.error"

static int l_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_getfield(L, 1, "message");
  lua_getfield(L, 1, "code");
  lua_getfield(L, 1, "where");
  const char *where = lua_tostring(L, -1);
  lua_pushfstring(L, "%s%s%s (%s)", where == NULL ? "" : where, where == NULL ? "" : ": ",
                  lua_tostring(L, -3), lua_tostring(L, -2));
  lua_getfield(L, 1, "traceback");
  if (lua_isstring(L, -1)) {
    lua_pushfstring(L, "%s\n%s", lua_tostring(L, -2), lua_tostring(L, -1));
  } else {
    lua_pop(L, 1);
  }
  return 1;
}

static int l_concat(lua_State *L) {
  for (int i = 1; i <= 2; i++) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
  }
  lua_concat(L, 2);
  return 1;
}

void kw_bind_push_error_meta(lua_State *L) {
  if (luaL_newmetatable(L, ERROR_NAME) == 0) return;
  lua_pushliteral(L, ERROR_NAME);
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, l_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_pushcfunction(L, l_concat);
  lua_setfield(L, -2, "__concat");
}

static void push_error(lua_State *L, int meta, const kw_error_info *info) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, info->code);
  lua_setfield(L, -2, "code");
  lua_pushstring(L, info->text);
  lua_setfield(L, -2, "message");
  lua_pushinteger(L, info->grpc_status);
  lua_setfield(L, -2, "grpc_status");
  lua_pushvalue(L, meta);
  lua_setmetatable(L, -2);
}

int kw_bind_push_failure(lua_State *L, int meta, int rc) {
  lua_pushnil(L);
  push_error(L, meta, kw_error_describe(rc));
  return 2;
}

void kw_bind_set_message(lua_State *L, const char *text) {
  if (text[0] == 0) return;
  lua_pushstring(L, text);
  lua_setfield(L, -2, "message");
}

void kw_bind_refuse_finalizer(lua_State *L, const char *what) {
  luaL_error(L, "the %s is in the middle of a call, and a finalizer has to wait", what);
}

static int l_new(lua_State *L) {
  int rc = kw_error_find(luaL_checkstring(L, 1));
  luaL_argcheck(L, rc != KW_OK, 1, "no such code");
  push_error(L, lua_upvalueindex(1), kw_error_describe(rc));
  return 1;
}

void kw_bind_push_error_new(lua_State *L) {
  kw_bind_push_error_meta(L);
  lua_pushcclosure(L, l_new, 1);
}

static int l_of(lua_State *L) {
  lua_Integer status = luaL_checkinteger(L, 1);
  kw_slice text = lua_isnoneornil(L, 2) ? kw_slice_of("", 0) : kw_bind_check_bytes(L, 2);
  int known = status >= 0 && status <= INT_MAX ? (int)status : 0;
  push_error(L, lua_upvalueindex(1), kw_error_describe(kw_error_recognize(known, text)));
  if (text.len > 0) {
    lua_pushvalue(L, 2);
    lua_setfield(L, -2, "message");
  }
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "grpc_status");
  return 1;
}

void kw_bind_push_error_of(lua_State *L) {
  kw_bind_push_error_meta(L);
  lua_pushcclosure(L, l_of, 1);
}
