/* SPDX-License-Identifier: MIT
 *
 * lua_bell: the bell of a loop, which core's threads ring to cause an iteration.
 */
#include "face/module.h"
#include "uv/binding.h"

/* loop:bell(): a userdata with a kw_bell, for functions of core that have threads. */
static int l_bell(lua_State *L) {
  kw_bell *bell = kw_new_object(L, KW_BELL_NAME, sizeof *bell, 0);
  *bell = kw_waker_bell(kw_uv_check_loop(L)->bell);
  return 1;
}

static int l_bell_gc(lua_State *L) {
  kw_bell *bell = luaL_checkudata(L, 1, KW_BELL_NAME);
  kw_bell_release(bell);
  bell->ring = NULL;
  return 0;
}

void kw_uv_add_bells(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_bell_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  static const luaL_Reg methods[] = {{"bell", l_bell}, {NULL, NULL}};
  kw_add_class(L, KW_BELL_NAME, meta, none);
  luaL_setfuncs(L, methods, 0);
}
