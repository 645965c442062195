/* SPDX-License-Identifier: MIT
 *
 * lua_signals: loop:catch, and the catchers that it returns.
 */
#include "face/module.h"
#include "uv/binding.h"

#define CATCHER_NAME "keywatch.uv.catcher"

/* Returns the catcher at index 1, after closing it in a forked child. */
static kw_catcher *check_catcher(lua_State *L) {
  kw_catcher *self = luaL_checkudata(L, 1, CATCHER_NAME);
  if (self->loop != NULL) kw_loop_enter(self->loop);
  return self;
}

/* Returns the bits of the signals in the list of names at index 2. */
static unsigned check_names(lua_State *L) {
  unsigned wanted = 0;
  luaL_checktype(L, 2, LUA_TTABLE);
  for (int i = 1; i <= (int)lua_rawlen(L, 2); i++) {
    lua_rawgeti(L, 2, i);
    int index = kw_signals_find(luaL_checkstring(L, -1));
    if (index < 0) luaL_error(L, "there is no signal '%s' that can be caught", lua_tostring(L, -1));
    wanted |= 1u << index;
    lua_pop(L, 1);
  }
  return wanted;
}

/* loop:catch(names): a catcher of the signals of these names, for example "INT"; or nil, text and name of the error. */
static int l_catch(lua_State *L) {
  kw_uv_check_loop(L);
  unsigned wanted = check_names(L);
  kw_catcher *self = kw_new_object(L, CATCHER_NAME, sizeof *self, 0);
  int rc = kw_catcher_open(self, kw_uv_check_loop(L), wanted);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  return 1;
}

/* catcher:take(): the name of a caught signal that was not taken yet; or nil. */
static int l_take(lua_State *L) {
  lua_pushstring(L, kw_catcher_take(check_catcher(L)));
  return 1;
}

/* catcher:is_ready(): true if there is a caught signal that was not taken yet. */
static int l_is_ready(lua_State *L) {
  lua_pushboolean(L, check_catcher(L)->untaken != 0);
  return 1;
}

/* catcher:state(): "open"; "closed"; or "inherited", if a parent of this process has opened the catcher. */
static int l_state(lua_State *L) {
  const kw_catcher *self = check_catcher(L);
  lua_pushstring(L, self->loop != NULL ? "open" : self->is_inherited ? "inherited" : "closed");
  return 1;
}

/* catcher:close(): stops catching, and drops the signals that were not taken. */
static int l_close(lua_State *L) {
  kw_catcher *self = check_catcher(L);
  kw_catcher_close(self);
  self->untaken = 0;
  return 0;
}

/* signal_names(): the list of the names of all signals that may be caught. */
static int l_signal_names(lua_State *L) {
  lua_createtable(L, KW_SIGNALS, 0);
  for (int i = 0; i < KW_SIGNALS; i++) {
    lua_pushstring(L, kw_signals_name(i));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

void kw_uv_add_signals(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};
  static const luaL_Reg catcher[] = {{"take", l_take},
                                     {"is_ready", l_is_ready},
                                     {"state", l_state},
                                     {"close", l_close},
                                     {NULL, NULL}};
  static const luaL_Reg methods[] = {{"catch", l_catch}, {NULL, NULL}};
  kw_add_class(L, CATCHER_NAME, meta, catcher);
  luaL_setfuncs(L, methods, 0);
}

void kw_uv_add_signal_names(lua_State *L) {
  static const luaL_Reg functions[] = {{"signal_names", l_signal_names}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
