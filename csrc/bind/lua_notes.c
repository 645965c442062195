/* SPDX-License-Identifier: MIT */
#include "bind/lua_notes.h"

#include "bind/lua_server.h"
#include "bind/lua_value.h"
#include "rpc/notes.h"

static kw_lua_server *check_server(lua_State *L) {
  return luaL_checkudata(L, 1, KW_SERVER_NAME);
}

static int l_take_notes(lua_State *L) {
  kw_lua_server *self = check_server(L);
  if (!self->is_open) return luaL_error(L, "the server is closed");
  if (!kw_notes_start(self->server)) return luaL_error(L, "not enough memory");
  return 0;
}

/* Also works for a closed server, whose last notes are about its end. */
static int l_next_note(lua_State *L) {
  static const char *const kinds[] = {
      [KW_NOTE_ACCEPTED] = "accepted", [KW_NOTE_ENDED] = "ended",
      [KW_NOTE_REJECTED] = "rejected", [KW_NOTE_REFUSED] = "refused",
      [KW_NOTE_SLOW] = "slow",         [KW_NOTE_LOST] = "lost",
      [KW_NOTE_TROUBLE] = "trouble",   [KW_NOTE_ACCEPT_FAILED] = "accept_failed"};
  kw_server *server = check_server(L)->server;
  kw_note note; /* a copy: finalizers may run */
  if (server == NULL || !kw_notes_next(server, &note)) return 0;
  lua_pushstring(L, kinds[note.kind]);
  lua_pushstring(L, note.remote);
  lua_pushlstring(L, (const char *)note.path, note.n_path);
  lua_pushinteger(L, note.status);
  lua_pushlstring(L, (const char *)note.text, note.n_text);
  kw_bind_push_int(L, note.amount);
  return 6;
}

static const luaL_Reg methods[] = {
    {"take_notes", l_take_notes}, {"next_note", l_next_note}, {NULL, NULL}};

void kw_bind_add_notes(lua_State *L) {
  luaL_setfuncs(L, methods, 0);
}
