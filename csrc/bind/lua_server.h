/* SPDX-License-Identifier: MIT
 *
 * lua_server: a server over a store, as a Lua object, and the engine for those who drive its sockets.
 *
 *   core.serve(store, options) -> server
 *   and what lua_call.h adds
 *   server:drain(seconds)   server:connections()   server:close()
 *   server:accept() -> peer                   a connection whose bytes are moved from Lua:
 *   peer:feed(bytes)   peer:pending() -> bytes   peer:state()   peer:deadline()   peer:step(seconds)   peer:close()
 */
#ifndef KW_BIND_LUA_SERVER_H
#define KW_BIND_LUA_SERVER_H

#include "bind/lua_store.h"
#include "rpc/server.h"

typedef struct kw_lua_server {
  kw_server *server;
  kw_lua_store *store; /* NULL: closed, by itself or with its store */
  int store_ref;       /* in the registry, while it is open */
  kw_lua_server *next; /* among the servers of the store */
  kw_lua_server **prev;
} kw_lua_server;

/* Pushes `serve`, and publishes the engine. */
void kw_bind_push_serve(lua_State *L);

/* Closes all servers of a store. */
void kw_bind_close_servers(lua_State *L, kw_lua_store *store);

#endif
