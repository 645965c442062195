/* SPDX-License-Identifier: MIT
 *
 * lua_server: a server over a store as a Lua object, and the engine for the drivers that own its sockets.
 *
 *   core.serve(store, options) -> server
 *                                     nil and an error if memory is short. store: nil for a server that has no
 *                                     methods before Lua adds some. options: cluster_id, member_id, raft_term,
 *                                     max_concurrent_streams; max_queued, quota_connection_bytes in bytes;
 *                                     measures_handling: see lua_metrics.h; handshake_timeout,
 *                                     keepalive_min_time, keepalive_interval, keepalive_timeout in seconds
 *   server:drain(seconds, now)        takes no new connections and streams; calls have `seconds` to end, 5 if absent.
 *                                     `now` is in seconds, here and below; CLOCK_MONOTONIC if absent
 *   server:connections() -> count     server:held() -> bytes that all connections hold
 *   server:step(now) -> deadline      does the work that is due. deadline: when to call step next, in seconds; nothing:
 *                                     only after something has happened
 *   server:close()                    ends all calls; the peers stay until they are closed
 *   server:accept(now, max_turn, remote) -> peer
 *                                     a connection whose bytes Lua moves; handles at most max_turn messages in a turn,
 *                                     any number if it is absent. remote: the address of the other end, as a text.
 *                                     Nothing if the server drains, or memory is short
 *   peer:feed(bytes, now)             bytes from the socket; "": the client has closed its side
 *   peer:pending(max) -> bytes        bytes for the socket, at most `max`, which count as written
 *   peer:state() -> wants_bytes, is_done, is_dirty, why
 *                                     is_dirty: something may have changed since `pending`; why: a text, or ""
 *   peer:deadline() -> seconds        when step is due; nothing: never
 *   peer:step(now)   peer:close()
 *
 * lua_call.h, lua_broadcast.h, lua_texts.h, lua_notes.h and lua_metrics.h have the other methods of a server.
 */
#ifndef KW_BIND_LUA_SERVER_H
#define KW_BIND_LUA_SERVER_H

#include "bind/lua_store.h"
#include "rpc/server.h"

typedef struct kw_lua_server {
  kw_server *server;   /* NULL: finalized */
  bool is_open;        /* false: closed, by itself or with its store */
  kw_lua_store *store; /* NULL: closed, or a server without a store */
  int store_ref;       /* keeps the store alive while the server is open */
  kw_lua_server *next; /* among the servers of the store */
  kw_lua_server **prev;
} kw_lua_server;

/* Pushes core.serve, and publishes the engine in the registry. */
void kw_bind_push_serve(lua_State *L);

/* Closes a server. Closing a closed server does nothing. Defined in lua_object.c. */
void kw_bind_close_server(lua_State *L, kw_lua_server *self);

#endif
