/* SPDX-License-Identifier: MIT
 *
 * lua_tls: the contexts of keywatch.tls as arguments.
 */
#include "uv/binding.h"

/* Returns the functions that keywatch.tls has published. */
static const kw_tls *check_tls(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, KW_TLS_KEY);
  const kw_tls *tls = lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (tls == NULL || tls->version != KW_TLS_VERSION)
    luaL_error(L, "keywatch.tls has another version than keywatch.uv: rebuild both");
  return tls;
}

/* The registry keeps the published functions alive. */
kw_tls_context *kw_uv_check_context(lua_State *L, int i, bool is_server, const kw_tls **tls) {
  *tls = NULL;
  if (lua_isnoneornil(L, i)) return NULL;
  void *object = luaL_checkudata(L, i, KW_TLS_CONTEXT_NAME);
  *tls = check_tls(L);
  kw_tls_context *context = (*tls)->context_of(object);
  if (context == NULL) luaL_error(L, "the context is closed");
  if ((*tls)->is_server(context) != is_server)
    luaL_error(L, is_server ? "this is a context of clients" : "this is a context of servers");
  return context;
}
