/* SPDX-License-Identifier: MIT
 *
 * lua_signals: loop:signals and loop:next_signal.
 */
#include "uv/binding.h"

/* loop:signals(names): catches these signals, and no others. true; or nil, text and name of the error. */
static int l_signals(lua_State *L) {
  bool wanted[KW_SIGNALS] = {false};
  kw_uv_check_loop(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  for (int i = 1; i <= (int)lua_rawlen(L, 2); i++) {
    lua_rawgeti(L, 2, i);
    int at = kw_loop_find_signal(luaL_checkstring(L, -1));
    if (at < 0) return luaL_error(L, "no signal to wait for: %s", lua_tostring(L, -1));
    wanted[at] = true;
    lua_pop(L, 1);
  }
  int rc = kw_loop_watch_signals(kw_uv_check_loop(L), wanted);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  lua_pushboolean(L, 1);
  return 1;
}

/* loop:next_signal(): the name of a signal that came and was not taken yet; or nil. */
static int l_next_signal(lua_State *L) {
  lua_pushstring(L, kw_loop_next_signal(kw_uv_check_loop(L)));
  return 1;
}

void kw_uv_add_signals(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"signals", l_signals}, {"next_signal", l_next_signal}, {NULL, NULL}};
  luaL_setfuncs(L, methods, 0);
}
