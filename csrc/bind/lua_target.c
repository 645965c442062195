/* SPDX-License-Identifier: MIT */
#include "bind/lua_target.h"

#include "bind/lua_value.h"
#include "http/target.h"

/* Pushes a buffer for decoded parts of a text. */
static uint8_t *push_buffer(lua_State *L, kw_slice text) {
  return lua_newuserdata(L, text.len + 1);
}

static void push_decoded(lua_State *L, kw_slice part, bool has_plus, uint8_t *buffer) {
  ptrdiff_t len = kw_percent_decode(part, has_plus, buffer);
  if (len >= 0) part = kw_slice_of(buffer, (size_t)len);
  lua_pushlstring(L, part.len == 0 ? "" : (const char *)part.data, part.len);
}

int kw_bind_percent_decode(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  if (text.len == 0 || memchr(text.data, '%', text.len) == NULL) {
    lua_settop(L, 1);
  } else {
    push_decoded(L, text, false, push_buffer(L, text));
  }
  return 1;
}

int kw_bind_read_query(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1), name, value;
  uint8_t *buffer = push_buffer(L, text);
  lua_newtable(L);
  while (kw_query_next(&text, &name, &value)) {
    if (name.len == 0 && value.len == 0) continue;
    push_decoded(L, name, true, buffer);
    lua_pushvalue(L, -1);
    lua_rawget(L, -3);
    bool is_first = lua_isnil(L, -1);
    lua_pop(L, 1);
    if (is_first) {
      push_decoded(L, value, true, buffer);
      lua_rawset(L, -3);
    } else {
      lua_pop(L, 1);
    }
  }
  return 1;
}
