/* SPDX-License-Identifier: MIT
 *
 * lua_address: addresses as Lua tables, and libuv's errors as results.
 */
#include "uv/binding.h"

int kw_uv_push_failure(lua_State *L, int rc) {
  lua_pushnil(L);
  lua_pushstring(L, uv_strerror(rc));
  lua_pushstring(L, uv_err_name(rc));
  return 3;
}

void kw_uv_push_address(lua_State *L, const kw_address *address) {
  char host[KW_ADDRESS_TEXT] = "";
  lua_newtable(L);
  if (kw_address_is_path(address)) {
    lua_pushstring(L, address->path.sun_path);
    lua_setfield(L, -2, "path");
    return;
  }
  kw_address_host(address, host);
  lua_pushstring(L, host);
  lua_setfield(L, -2, "host");
  lua_pushinteger(L, kw_address_port(address));
  lua_setfield(L, -2, "port");
}

void kw_uv_push_hosts(lua_State *L, const kw_address *addresses, int n) {
  char host[KW_ADDRESS_TEXT] = "";
  lua_newtable(L);
  for (int i = 0; i < n; i++) {
    kw_address_host(&addresses[i], host);
    lua_pushstring(L, host);
    lua_rawseti(L, -2, i + 1);
  }
}

static int read_path(lua_State *L, int i, kw_address *address) {
  size_t len;
  lua_getfield(L, i, "path");
  const char *path = luaL_checklstring(L, -1, &len);
  return kw_address_init_path(address, path, len);
}

static int read_ip(lua_State *L, int i, kw_address *address) {
  lua_getfield(L, i, "host");
  lua_getfield(L, i, "port");
  const char *host = luaL_checkstring(L, -2);
  lua_Integer port = luaL_checkinteger(L, -1);
  luaL_argcheck(L, port >= 0 && port <= UINT16_MAX, i, "a port is 0 to 65535");
  return kw_address_init_ip(address, host, (uint16_t)port);
}

int kw_uv_read_address(lua_State *L, int i, kw_address *address) {
  int top = lua_gettop(L);
  luaL_checktype(L, i, LUA_TTABLE);
  lua_getfield(L, i, "path");
  bool is_path = !lua_isnil(L, -1);
  int rc = is_path ? read_path(L, i, address) : read_ip(L, i, address);
  lua_settop(L, top);
  return rc;
}
