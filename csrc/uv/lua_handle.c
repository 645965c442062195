/* SPDX-License-Identifier: MIT
 *
 * lua_handle: keeps the server and client objects alive that a loop uses. See kw_uv_handle.
 */
#include "face/module.h"
#include "uv/binding.h"

#define HANDLE_NAME "keywatch.uv.handle"

kw_uv_handle *kw_uv_add_handle(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  kw_uv_handle *self = kw_new_object(L, HANDLE_NAME, sizeof *self, 0);
  lua_pushvalue(L, 2);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  return self;
}

static void close_handle(kw_uv_handle *self) {
  if (self->server != NULL) kw_loop_server_close(self->server, "the server is closed");
  if (self->client != NULL) kw_loop_client_close(self->client, uv_strerror(UV_ECANCELED));
}

static int l_handle_gc(lua_State *L) {
  kw_uv_handle *self = luaL_checkudata(L, 1, HANDLE_NAME);
  if (self->server != NULL) kw_loop_enter(self->server->loop);
  if (self->client != NULL) kw_loop_enter(self->client->loop);
  close_handle(self);
  return 0;
}

static bool is_idle(const kw_uv_handle *self) {
  if (self->server != NULL) return kw_loop_server_is_idle(self->server);
  return self->client == NULL;
}

void kw_uv_release_idle(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    kw_uv_handle *self = lua_touserdata(L, -2);
    lua_pop(L, 1);
    if (!is_idle(self)) continue;
    close_handle(self);
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_pop(L, 1);
}

/* Returns the handle of the object at index 2, or NULL. The object may be closed. */
static kw_uv_handle *find_handle(lua_State *L) {
  lua_settop(L, 2);
  lua_getiuservalue(L, 1, 1);
  lua_pushnil(L);
  while (lua_next(L, 3) != 0) {
    if (lua_rawequal(L, -1, 2)) return lua_touserdata(L, -2);
    lua_pop(L, 1);
  }
  return NULL;
}

/* loop:hosts(object): true if a server has listeners or connections, or a client its connection. */
static int l_hosts(lua_State *L) {
  kw_uv_check_loop(L);
  const kw_uv_handle *self = find_handle(L);
  lua_pushboolean(L, self != NULL && (self->server != NULL || self->client != NULL));
  return 1;
}

/* loop:release(object): closes the listeners and connections of a server, or the connection of a client, at once. */
static int l_release(lua_State *L) {
  kw_uv_check_loop(L);
  kw_uv_handle *self = find_handle(L);
  if (self != NULL) close_handle(self);
  kw_uv_release_idle(L);
  return 0;
}

void kw_uv_add_handles(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_handle_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  static const luaL_Reg methods[] = {{"hosts", l_hosts}, {"release", l_release}, {NULL, NULL}};
  kw_add_class(L, HANDLE_NAME, meta, none);
  luaL_setfuncs(L, methods, 0);
}
