/* SPDX-License-Identifier: MIT
 *
 * object: userdata that hold one pointer, which is NULL when what they stand for is closed.
 */
#ifndef KW_UV_OBJECT_H
#define KW_UV_OBJECT_H

#include "base/common.h"
#include "face/compat.h"

#define KW_LOOP_NAME "keywatch.uv.loop"

/* Pushes one whose pointer is NULL, with room for `values` values. */
static inline void kw_object_push(lua_State *L, const char *name, int values) {
  void **self = lua_newuserdatauv(L, sizeof *self, values);
  (void)values; /* LuaJIT's has always one */
  *self = NULL;
  luaL_getmetatable(L, name);
  lua_setmetatable(L, -2);
}

#endif
