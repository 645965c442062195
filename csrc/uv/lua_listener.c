/* SPDX-License-Identifier: MIT
 *
 * lua_listener: loop:listen, and listeners in Lua.
 */
#include "face/module.h"
#include "uv/binding.h"
#include "uv/listener.h"

#define LISTENER_NAME "keywatch.uv.listener"

/* Returns the loop's server for the server object at index 2. Attaches the server, with the handle, if it is new. */
static kw_loop_server *check_server(lua_State *L, kw_loop *loop, kw_uv_handle *self) {
  const kw_engine *engine = kw_uv_check_engine(L);
  kw_server *server = engine->server_of(luaL_checkudata(L, 2, KW_SERVER_NAME));
  if (server == NULL) luaL_error(L, "the server is closed");
  kw_loop_server *loop_server = kw_loop_server_find(loop, server);
  if (loop_server != NULL) return loop_server;
  if (kw_loop_server_open(&self->server, loop, engine, server) < 0)
    luaL_error(L, "not enough memory");
  return self->server;
}

static kw_listener **check_listener(lua_State *L) {
  return luaL_checkudata(L, 1, LISTENER_NAME);
}

/* loop:listen(server, address, context): a listener, with TLS if a context is given; or nil, text and name of the
 * error. */
static int l_listen(lua_State *L) {
  kw_address address;
  const kw_tls *tls;
  kw_uv_check_loop(L);
  lua_settop(L, 4);
  kw_uv_check_context(L, 4, true, &tls);
  int rc = kw_uv_read_address(L, 3, &address);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  kw_new_object(L, LISTENER_NAME, sizeof(void *), 0);
  kw_uv_handle *self = kw_uv_add_handle(L);
  kw_loop_server *loop_server = check_server(L, kw_uv_check_loop(L), self);
  kw_tls_context *context = kw_uv_check_context(L, 4, true, &tls);
  rc = kw_listener_open(lua_touserdata(L, 5), loop_server, &address, tls, context);
  kw_uv_release_idle(
      L); /* the new handle, if the server had one; the server, if it does not listen */
  return rc == 0 ? 1 : kw_uv_push_failure(L, rc);
}

/* listener:address(): the address, with the port that the kernel chose. */
static int l_address(lua_State *L) {
  kw_listener **self = check_listener(L);
  kw_address address;
  if (*self != NULL) kw_loop_enter((*self)->loop_server->loop);
  if (*self == NULL) return luaL_error(L, "the listener is closed");
  int rc = kw_address_init_socket(&address, (*self)->fd);
  if (rc < 0) return kw_uv_push_failure(L, rc);
  kw_uv_push_address(L, &address);
  return 1;
}

/* listener:close() */
static int l_listener_close(lua_State *L) {
  kw_listener **self = check_listener(L);
  if (*self != NULL) kw_loop_enter((*self)->loop_server->loop);
  if (*self != NULL) kw_listener_close(*self);
  return 0;
}

void kw_uv_add_listeners(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_listener_close}, {NULL, NULL}};
  static const luaL_Reg own[] = {{"address", l_address}, {"close", l_listener_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"listen", l_listen}, {NULL, NULL}};
  kw_add_class(L, LISTENER_NAME, meta, own);
  luaL_setfuncs(L, methods, 0);
}
