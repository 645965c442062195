/* SPDX-License-Identifier: MIT
 *
 * lua_client: a client's connection whose bytes are moved from Lua.
 *
 *   core.client(authority) -> client
 *   client:call(path, metadata) -> call       metadata: { name = value }; nothing if no more calls can be made now
 *   client:send(call, message)   client:half_close(call)   client:cancel(call)
 *   client:next() -> call, message | call, false, status, text; nothing if nothing has come
 *   client:feed(bytes)   client:pending() -> bytes   client:state() -> wants bytes, is done
 *   client:deadline()   client:step(now)   client:close()
 */
#ifndef KW_BIND_LUA_CLIENT_H
#define KW_BIND_LUA_CLIENT_H

#include "face/compat.h"

/* Pushes `client`. */
void kw_bind_push_client(lua_State *L);

#endif
