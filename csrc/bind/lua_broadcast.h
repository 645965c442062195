/* SPDX-License-Identifier: MIT
 *
 * lua_broadcast: the same bytes for many HTTP answers of a server, see rpc/broadcast.h.
 *
 *   core.broadcast() -> broadcast
 *   broadcast:publish(bytes, at) -> the number of members that get the bytes. `at`: the number of the publish
 *   broadcast:absorb(other)           takes all members of the other broadcast
 *   server:join(id, broadcast) -> true: the request is a member now; false: it has ended, or was not answered yet
 *   server:lag(id) -> at              nothing, unless the request lags: the first publish that it has missed
 *   server:leave(id)                  the request is no member, and does not lag
 *
 * After a broadcast has left a request out, next_news returns the request when it has room. Without memory, publish
 * raises with nothing published.
 */
#ifndef KW_BIND_LUA_BROADCAST_H
#define KW_BIND_LUA_BROADCAST_H

#include "face/compat.h"

/* Pushes core.broadcast. */
void kw_bind_push_broadcast(lua_State *L);

/* Adds the methods of a server to the table on top of the stack. */
void kw_bind_add_broadcasts(lua_State *L);

#endif
