/* SPDX-License-Identifier: MIT
 *
 * lua_fetch: an HTTP connection of a client as a Lua object, which is that of bind/lua_client.h. It has the methods for
 * drivers, and the methods below. The methods for calls and watches raise.
 *
 *   core.http_client(options, now) -> client           options: connect_timeout and idle_timeout in seconds, 0:
 *                                                      unlimited; is_tls; has_h2: HTTP/2 without TLS. Returns nothing
 *                                                      if memory is short
 *   client:fetch(method, authority, path, fields, length) -> id
 *                                                      fields: { name, value, ... }. length: of the body; -1: unknown.
 *                                                      Returns nothing if the connection accepts no request now, or if
 *                                                      a part of the head is not valid
 *   client:write(id, bytes) -> has_room                nothing: the fetch has ended, or is about to. false:
 *                                                      `next_fetch` returns the fetch when it has room
 *   client:finish(id)                                  ends the request
 *   client:take(id) -> kind, ...                       the next part of the answer; nothing: none has arrived.
 *                                                      "head", status, { name, value, ... }
 *                                                      "body", bytes
 *                                                      "end", { name, value, ... } or nil: the trailers
 *                                                      "closed", why, fate: the last one. why: nil, or why the fetch
 *                                                      has failed; fate: a name of a kw_fate, see http/exchange.h
 *   client:drop(id)                                    abandons a fetch
 *   client:next_fetch() -> id                          the next fetch with something to take, or room; or nothing
 *   client:is_idle() -> boolean, most                  true if the connection accepts a request. most: the number of
 *                                                      requests that an HTTP/2 connection carries at once; or nothing
 *   client:unsent() -> n                               bytes that wait to be written
 *   client:moved(id) -> n                              of HTTP/2: a number that grows when bytes of the fetch move
 *
 * A finalizer may call drop, next_fetch and is_idle of a client that was finalized before.
 */
#ifndef KW_BIND_LUA_FETCH_H
#define KW_BIND_LUA_FETCH_H

#include "face/compat.h"
#include "rpc/client.h"

/* Adds the methods to the table on top of the stack. */
void kw_bind_add_fetches(lua_State *L);

#endif
