/* SPDX-License-Identifier: MIT
 *
 * lua_dialer: loop:dial.
 */
#include "uv/binding.h"

/* Makes the TLS part of a connection. After a failure, sets *failure and returns NULL. */
static kw_tls_peer *open_tls(kw_loop *loop, const kw_engine *engine, const kw_tls *tls,
                             kw_tls_context *context, const char *host, const char *cache_key,
                             kw_tls_failure *failure) {
  kw_tls_channel *channel = tls->connect(context, host, cache_key, failure);
  if (channel == NULL) return NULL;
  kw_tls_peer *tls_peer = kw_tls_peer_new(loop, tls, channel, engine->dialed);
  if (tls_peer != NULL) return tls_peer;
  tls->close(channel);
  *failure = (kw_tls_failure){KW_TLS_MEMORY, "not enough memory"};
  return NULL;
}

static int push_tls_failure(lua_State *L, const kw_tls_failure *failure) {
  lua_pushnil(L);
  lua_pushstring(L, failure->text);
  lua_pushliteral(L, "TLS");
  return 3;
}

/* loop:dial(client, address, context, host, cache_key): true; or nil, text and name of the error. The connection may
 * still fail later: the client object reports that. With a context the connection uses TLS, see kw_tls for host and
 * cache_key. */
static int l_dial(lua_State *L) {
  kw_address address;
  const kw_tls *tls;
  kw_tls_failure failure;
  kw_uv_check_loop(L);
  lua_settop(L, 6);
  void *object = luaL_checkudata(L, 2, KW_CLIENT_NAME);
  if (kw_uv_check_context(L, 4, false, &tls) != NULL) {
    luaL_checktype(L, 5, LUA_TSTRING);
    luaL_checktype(L, 6, LUA_TSTRING);
  }
  int rc = kw_uv_read_address(L, 3, &address);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  kw_uv_handle *self = kw_uv_add_handle(L);
  kw_loop *loop = kw_uv_check_loop(L);
  const kw_engine *engine = kw_uv_check_engine(L);
  kw_tls_context *context = kw_uv_check_context(L, 4, false, &tls);
  kw_client *client = engine->client_of(object);
  if (client == NULL) return luaL_error(L, "the client is closed, or was dialed before");
  kw_tls_peer *tls_peer = NULL;
  if (context != NULL) {
    tls_peer =
        open_tls(loop, engine, tls, context, lua_tostring(L, 5), lua_tostring(L, 6), &failure);
    if (tls_peer == NULL) {
      kw_uv_release_idle(L);
      return push_tls_failure(L, &failure);
    }
  }
  rc = kw_loop_client_open(&self->client, loop, engine, client, &address, tls_peer);
  if (rc < 0) {
    if (tls_peer != NULL) kw_tls_peer_free(tls_peer);
    kw_uv_release_idle(L);
    return kw_uv_push_failure(L, rc);
  }
  lua_pushboolean(L, 1);
  return 1;
}

void kw_uv_add_dialer(lua_State *L) {
  static const luaL_Reg methods[] = {{"dial", l_dial}, {NULL, NULL}};
  luaL_setfuncs(L, methods, 0);
}
