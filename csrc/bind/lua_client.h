/* SPDX-License-Identifier: MIT
 *
 * lua_client: a client's HTTP/2 connection as a Lua object.
 *
 *   core.client(authority, options, now) -> client    times in seconds
 *   client:call(path, metadata, is_unary) -> id        nothing if the connection takes no more calls
 *   client:send(id, message) -> is_live                is_live: the call had not ended
 *   client:half_close(id)   client:cancel(id)
 *   client:has_room(id, max) -> boolean                whether at most `max` sent bytes are unwritten; if not, `next`
 *                                                      returns the call once they are
 *   client:receive(id) -> message                      or false, status, text, is_refused; or nothing yet
 *   client:next() -> id                                the next call that has something to receive, or nothing
 *   client:watch(metadata, max_partial) -> id             opens a watch call; nothing if that is not possible
 *   client:ask(id)                                     asks for progress of all watches of a watch call
 *   client:trust(id)                                   believes progress of a watch call: this server does not send
 *                                                      progress before the events that it covers
 *   client:inspect(id) -> heard, watches, is_held      of a watch call; nothing if it has ended
 *   client:next_watch() -> tag                         the next armed watch that has received something, or nothing
 *   client:health() -> is_ready, is_over, why, got_enhance_your_calm
 *   client:feed(bytes, now)   client:pending(max) -> bytes   client:state() -> wants_bytes, is_done
 *   client:deadline()   client:step(now)   client:close()
 *
 * A finalizer may call cancel, next, next_watch and health of a client that was finalized before: they do nothing
 * then.
 */
#ifndef KW_BIND_LUA_CLIENT_H
#define KW_BIND_LUA_CLIENT_H

#include "base/common.h"
#include "face/compat.h"
#include "face/engine.h"

/* Pushes the function core.client. */
void kw_bind_push_client(lua_State *L);

/* Returns the client of the object at stack index `arg`. Raises if the client is closed. */
kw_client *kw_bind_check_client(lua_State *L, int arg);

/* The functions of the engine by which a driver moves the bytes of a client. */
extern const kw_peer_face kw_bind_dialed_face;

/* Returns the client of a userdata for a driver that dials it. Returns NULL if the client is closed, or was dialed
 * before. */
kw_client *kw_bind_client_of(void *object);

#endif
