/* SPDX-License-Identifier: MIT */
#include "bind/lua_inflate.h"

#include "bind/lua_value.h"
#include "face/module.h"
#include "http/inflate.h"

#define INFLATER_NAME "keywatch.core.inflater"
#define ROOM 65536 /* bytes of the text of a step */

typedef struct lua_inflater {
  kw_inflate *inflate; /* NULL: it was freed, or never made */
} lua_inflater;

static int l_inflater(lua_State *L) {
  lua_inflater *self = kw_new_object(L, INFLATER_NAME, sizeof *self, 0);
  self->inflate = kw_inflate_new();
  return self->inflate == NULL ? 0 : 1;
}

static int push_failure(lua_State *L, kw_inflated result) {
  lua_pushnil(L);
  lua_pushstring(L,
                 result == KW_INFLATE_BAD ? "the compressed body is not valid" : "out of memory");
  return 2;
}

static int l_step(lua_State *L) {
  size_t n = 0;
  const lua_inflater *self = luaL_checkudata(L, 1, INFLATER_NAME);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  size_t from = (size_t)kw_bind_check_int(L, 3, 1) - 1;
  luaL_argcheck(L, from <= bytes.len, 3, "an index of the bytes expected");
  uint8_t *text = lua_newuserdatauv(L, ROOM, 0); /* first: it may let finalizers run */
  kw_slice rest = kw_slice_of(bytes.data + from, bytes.len - from);
  if (self->inflate == NULL) return luaL_error(L, "the inflater was freed");
  kw_inflated result = kw_inflate_step(self->inflate, &rest, text, ROOM, &n);
  if (result != KW_INFLATED && result != KW_INFLATED_ALL) return push_failure(L, result);
  lua_pushlstring(L, (const char *)text, n);
  lua_pushinteger(L, (lua_Integer)(bytes.len - rest.len + 1));
  lua_pushboolean(L, result == KW_INFLATED_ALL);
  return 3;
}

static int l_gc(lua_State *L) {
  lua_inflater *self = luaL_checkudata(L, 1, INFLATER_NAME);
  if (self->inflate != NULL) kw_inflate_free(self->inflate);
  self->inflate = NULL;
  return 0;
}

void kw_bind_push_inflater(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"step", l_step}, {NULL, NULL}};
  kw_add_class(L, INFLATER_NAME, meta, methods);
  lua_pushcfunction(L, l_inflater);
}
