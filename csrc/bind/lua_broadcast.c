/* SPDX-License-Identifier: MIT */
#include "bind/lua_broadcast.h"

#include "bind/lua_server.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "rpc/broadcast.h"

#define BROADCAST_NAME "keywatch.core.broadcast"

static int l_broadcast(lua_State *L) {
  kw_broadcast_init(kw_new_object(L, BROADCAST_NAME, sizeof(kw_broadcast), 0));
  return 1;
}

static kw_broadcast *check_broadcast(lua_State *L, int arg) {
  return luaL_checkudata(L, arg, BROADCAST_NAME);
}

static int l_publish(lua_State *L) {
  kw_broadcast *self = check_broadcast(L, 1);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  int64_t at = kw_bind_check_int(L, 3, 0);
  kw_blob *blob = kw_blob_copy(bytes);
  if (blob == NULL) return luaL_error(L, "not enough memory");
  size_t n = kw_broadcast_publish(self, blob, at);
  kw_blob_release(blob);
  lua_pushinteger(L, (lua_Integer)n);
  return 1;
}

static int l_absorb(lua_State *L) {
  kw_broadcast *self = check_broadcast(L, 1), *other = check_broadcast(L, 2);
  luaL_argcheck(L, self != other, 2, "another broadcast expected");
  kw_broadcast_absorb(self, other);
  return 0;
}

static int l_gc(lua_State *L) {
  kw_broadcast_drop(check_broadcast(L, 1));
  return 0;
}

/* Returns NULL if the server is closed, and so has no calls. */
static kw_server *server_of(lua_State *L) {
  kw_lua_server *self = luaL_checkudata(L, 1, KW_SERVER_NAME);
  return self->is_open ? self->server : NULL;
}

static int l_join(lua_State *L) {
  kw_server *server = server_of(L);
  uint64_t id = (uint64_t)kw_bind_check_int(L, 2, 0);
  kw_broadcast *broadcast = check_broadcast(L, 3);
  lua_pushboolean(L, server != NULL && kw_broadcast_join(broadcast, server, id));
  return 1;
}

static int l_lag(lua_State *L) {
  const kw_server *server = server_of(L);
  uint64_t id = (uint64_t)kw_bind_check_int(L, 2, 0);
  int64_t at;
  if (server == NULL || !kw_broadcast_lag(server, id, &at)) return 0;
  kw_bind_push_int(L, at);
  return 1;
}

static int l_leave(lua_State *L) {
  kw_server *server = server_of(L);
  uint64_t id = (uint64_t)kw_bind_check_int(L, 2, 0);
  if (server != NULL) kw_broadcast_leave(server, id);
  return 0;
}

void kw_bind_add_broadcasts(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"join", l_join}, {"lag", l_lag}, {"leave", l_leave}, {NULL, NULL}};
  luaL_setfuncs(L, methods, 0);
}

void kw_bind_push_broadcast(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"publish", l_publish}, {"absorb", l_absorb}, {NULL, NULL}};
  kw_add_class(L, BROADCAST_NAME, meta, methods);
  lua_pushcfunction(L, l_broadcast);
}
