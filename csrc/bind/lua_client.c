/* SPDX-License-Identifier: MIT */
#include "bind/lua_client.h"

#include "bind/lua_peer.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "rpc/client.h"

#define CLIENT_NAME "keywatch.core.client"
#define MAX_UNTAKEN (64 << 20)

typedef struct lua_client {
  kw_client *client; /* NULL: closed */
} lua_client;

static kw_client *check_client(lua_State *L) {
  lua_client *self = luaL_checkudata(L, 1, CLIENT_NAME);
  if (self->client == NULL) luaL_error(L, "the connection is closed");
  return self->client;
}

static uint64_t check_call(lua_State *L) {
  return (uint64_t)kw_bind_check_int(L, 2, 1);
}

static int l_client(lua_State *L) {
  kw_slice authority = kw_bind_check_bytes(L, 1);
  kw_session_options options = kw_session_defaults();
  options.max_message = options.max_torn = INT32_MAX;
  options.keepalive_ms = 0;
  int64_t now = kw_bind_opt_now(L, 2);
  lua_client *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (lua_client){0};
  luaL_getmetatable(L, CLIENT_NAME);
  lua_setmetatable(L, -2);
  self->client = kw_client_new(&options, authority, MAX_UNTAKEN, now);
  return self->client == NULL ? luaL_error(L, "not enough memory") : 1;
}

static size_t read_metadata(lua_State *L, int at, kw_field_line *lines) {
  size_t n = 0;
  if (lua_isnoneornil(L, at)) return 0;
  luaL_checktype(L, at, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    if (n == KW_MAX_METADATA) luaL_error(L, "more than %d lines of metadata", KW_MAX_METADATA);
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      luaL_error(L, "metadata: names and values are strings");
    lines[n++] = (kw_field_line){kw_bind_bytes(L, -2), kw_bind_bytes(L, -1)};
  }
  return n;
}

static int l_call(lua_State *L) {
  kw_client *client = check_client(L);
  kw_field_line lines[KW_MAX_METADATA];
  kw_slice path = kw_bind_check_bytes(L, 2);
  uint64_t call = kw_client_call(client, path, lines, read_metadata(L, 3, lines));
  if (call == 0) return 0;
  kw_bind_push_int(L, (int64_t)call);
  return 1;
}

static int l_send(lua_State *L) {
  kw_client *client = check_client(L);
  uint64_t call = check_call(L);
  if (!kw_client_send(client, call, kw_bind_check_bytes(L, 3)))
    return luaL_error(L, "not enough memory");
  return 0;
}

static int l_half_close(lua_State *L) {
  kw_client *client = check_client(L);
  kw_client_half_close(client, check_call(L));
  return 0;
}

static int l_cancel(lua_State *L) {
  kw_client *client = check_client(L);
  kw_client_cancel(client, check_call(L));
  return 0;
}

static int l_next(lua_State *L) {
  kw_client *client = check_client(L);
  kw_blob **holder = kw_bind_new_holder(L);
  kw_return what;
  if (!kw_client_take(client, &what)) return 0;
  *holder = what.bytes;
  kw_bind_push_int(L, (int64_t)what.call);
  bool is_end = what.kind == KW_RETURN_END;
  if (is_end) {
    lua_pushboolean(L, 0);
    lua_pushinteger(L, what.status);
  }
  kw_bind_push_held(L, holder);
  return is_end ? 4 : 2;
}

static int l_feed(lua_State *L) {
  kw_client *client = check_client(L);
  kw_client_feed(client, kw_bind_check_bytes(L, 2), kw_bind_opt_now(L, 3));
  return 0;
}

static size_t pending(void *client, struct iovec *pieces, size_t max) {
  return kw_client_pending(client, pieces, max);
}

static void wrote(void *client, size_t bytes) {
  kw_client_wrote(client, bytes);
}

static int l_pending(lua_State *L) {
  return kw_bind_push_pending(L, 2, check_client(L), pending, wrote);
}

static int l_state(lua_State *L) {
  const kw_client *client = check_client(L);
  lua_pushboolean(L, kw_client_wants_bytes(client));
  lua_pushboolean(L, kw_client_is_done(client));
  return 2;
}

static int l_deadline(lua_State *L) {
  return kw_bind_push_deadline(L, kw_client_deadline(check_client(L)));
}

static int l_step(lua_State *L) {
  kw_client *client = check_client(L);
  kw_client_step(client, kw_bind_opt_now(L, 2));
  return 0;
}

static int l_close(lua_State *L) {
  lua_client *self = luaL_checkudata(L, 1, CLIENT_NAME);
  if (self->client != NULL) kw_client_free(self->client);
  self->client = NULL;
  return 0;
}

static const luaL_Reg methods[] = {
    {"call", l_call},         {"send", l_send}, {"half_close", l_half_close}, {"cancel", l_cancel},
    {"next", l_next},         {"feed", l_feed}, {"pending", l_pending},       {"state", l_state},
    {"deadline", l_deadline}, {"step", l_step}, {"close", l_close},           {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_client(lua_State *L) {
  kw_add_class(L, CLIENT_NAME, meta, methods);
  lua_pushcfunction(L, l_client);
}
