/* SPDX-License-Identifier: MIT */
#include "bind/lua_fields.h"

#include "bind/lua_value.h"
#include "http/text.h"

size_t kw_bind_check_fields(lua_State *L, int index, kw_http_field fields[KW_HEAD_FIELDS]) {
  size_t n = 0;
  luaL_checktype(L, index, LUA_TTABLE);
  luaL_argcheck(L, lua_rawlen(L, index) <= 2 * KW_HEAD_FIELDS, index, "too many fields");
  for (int i = 1; i < (int)lua_rawlen(L, index); i += 2) {
    lua_rawgeti(L, index, i);
    lua_rawgeti(L, index, i + 1);
    luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING && lua_type(L, -2) == LUA_TSTRING, index,
                  "strings expected");
    fields[n++] =
        (kw_http_field){kw_bind_check_bytes(L, -2), kw_text_trim(kw_bind_check_bytes(L, -1))};
    lua_pop(L, 2);
  }
  return n;
}

void kw_bind_push_fields(lua_State *L, kw_slice packed) {
  const char *at = (const char *)packed.data, *end = at + packed.len;
  lua_newtable(L);
  for (int i = 1; at < end; i++) {
    size_t len = strlen(at);
    lua_pushlstring(L, at, len);
    lua_rawseti(L, -2, i);
    at += len + 1;
  }
}
