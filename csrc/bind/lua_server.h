/* SPDX-License-Identifier: MIT
 *
 * lua_server: a server over a store as a Lua object, and the engine for the drivers that own its sockets.
 *
 *   core.serve(store, options) -> server
 *   server:drain(seconds, now)        takes no new connections and streams; what is open may end, at most so long
 *   server:connections() -> count     server:held() -> bytes that all connections hold
 *   server:tend(now) -> deadline      does the work that is due
 *   server:close()
 *   server:accept(now, max_turn) -> peer
 *                                     a connection whose bytes Lua moves; hears at most max_turn messages in a turn
 *   peer:feed(bytes, now)   peer:pending(max) -> bytes   peer:state() -> wants_bytes, is_done, is_dirty, why
 *   peer:deadline()   peer:step(now)   peer:close()
 *
 * lua_call.h has the other methods of a server.
 */
#ifndef KW_BIND_LUA_SERVER_H
#define KW_BIND_LUA_SERVER_H

#include "bind/lua_store.h"
#include "rpc/server.h"

typedef struct kw_lua_server {
  kw_server *server;   /* NULL: finalized */
  kw_lua_store *store; /* NULL: closed, by itself or with its store */
  int store_ref;       /* keeps the store alive while the server is open */
  kw_lua_server *next; /* among the servers of the store */
  kw_lua_server **prev;
} kw_lua_server;

/* Pushes core.serve, and publishes the engine in the registry. */
void kw_bind_push_serve(lua_State *L);

/* Closes all open servers of a store. */
void kw_bind_close_servers(lua_State *L, kw_lua_store *store);

#endif
