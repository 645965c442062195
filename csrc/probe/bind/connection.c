/* SPDX-License-Identifier: MIT */
#include "probe/bind.h"

#include "bind/lua_client.h"
#include "bind/lua_server.h"
#include "probe/checks.h"

static int raise_fault(lua_State *L, const char *fault) {
  return fault == NULL ? 0 : luaL_error(L, "invariant: %s", fault);
}

static int l_check_server(lua_State *L) {
  const kw_lua_server *self = luaL_checkudata(L, 1, KW_SERVER_NAME);
  luaL_argcheck(L, self->server != NULL, 1, "closed");
  return raise_fault(L, kw_server_fault(self->server));
}

static int l_check_client(lua_State *L) {
  return raise_fault(L, kw_client_fault(kw_bind_check_client(L, 1)));
}

void kw_bind_add_probe_connection(lua_State *L) {
  lua_pushcfunction(L, l_check_server);
  lua_setfield(L, -2, "check_server");
  lua_pushcfunction(L, l_check_client);
  lua_setfield(L, -2, "check_client");
}
