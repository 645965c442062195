/* SPDX-License-Identifier: MIT
 *
 * lua_dialer: loop:dial.
 */
#include "uv/binding.h"

/* loop:dial(client, address): true; or nil, text and name of the error. The connection may still fail: the client
 * object tells. */
static int l_dial(lua_State *L) {
  kw_address address;
  kw_uv_check_loop(L);
  lua_settop(L, 3);
  void *object = luaL_checkudata(L, 2, KW_CLIENT_NAME);
  int rc = kw_uv_read_address(L, 3, &address);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  kw_uv_handle *self = kw_uv_add_handle(L);
  kw_loop *loop = kw_uv_check_loop(L);
  const kw_engine *engine = kw_uv_check_engine(L);
  kw_client *client = engine->client_of(object);
  if (client == NULL) return luaL_error(L, "the client is closed, or was dialed before");
  rc = kw_loop_client_open(&self->client, loop, engine, client, &address);
  if (rc < 0) {
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
