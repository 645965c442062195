/* SPDX-License-Identifier: MIT
 *
 * lua_call: the calls of a server that Lua answers, or sees first, as methods of the server.
 *
 *   server:mount(path, is_stream, takes_one)
 *                                       calls of this method are answered from Lua; a stream may take one request only
 *   server:intercept()                  every call of the services in C is shown first
 *   server:next_news() -> id, is_new, has_input, has_room, status
 *                                       a call that has news; status once it has ended, and then it is gone
 *   server:info(id) -> path, is_stream, is_intercepted, remote, seconds, metadata
 *                                       seconds: that it has; metadata: name, value, name, value ...
 *   server:receive(id) -> message       nil: none yet, or the call is gone; false: none any more
 *   server:send(id, message) -> has_room
 *   server:finish(id, status, text)
 *   server:proceed(id)                  an intercepted call goes on to its method
 */
#ifndef KW_BIND_LUA_CALL_H
#define KW_BIND_LUA_CALL_H

#include "face/compat.h"

/* Adds the methods to the table at the top. */
void kw_bind_add_calls(lua_State *L);

#endif
