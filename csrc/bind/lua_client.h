/* SPDX-License-Identifier: MIT
 *
 * lua_client: a client's connection as a Lua object, for gRPC. For HTTP it has the methods of bind/lua_fetch.h, too.
 *
 *   core.client(authority, options, now) -> client     options: handshake_timeout, keepalive and keepalive_timeout in
 *                                                      seconds, max_message in bytes, is_tls: requests say https.
 *                                                      seed: of the hashes, for repeatable runs
 *                                                      `now` is in seconds, here and below; CLOCK_MONOTONIC if absent.
 *                                                      Returns nothing if memory is short
 *   client:call(path, metadata, is_unary) -> id        metadata: { name = value }, at most 32 fields, or nil. Returns
 *                                                      nothing if the connection takes no more calls
 *   client:send(id, message) -> is_live                is_live: the call has not ended. Without memory it ends
 *                                                      with UNAVAILABLE
 *   client:half_close(id)   client:cancel(id)
 *   client:has_room(id, max) -> boolean                whether at most `max` sent bytes of the call wait; if not,
 *                                                      `next` returns the call when it may have room
 *   client:receive(id, is_wrapped) -> message          or, at the end of the call, false, status, text, is_refused
 *                                                      (the server has not processed the call); or nothing yet.
 *                                                      is_wrapped: returns the message inside of the message, its
 *                                                      field 1, or true if the message has other fields
 *   client:next() -> id                                the next call with something to receive, or room; or nothing
 *   client:watch(metadata, max_partial) -> id          opens a watch call; nothing if that is not possible.
 *                                                      max_partial: limit in bytes of a revision that comes in parts
 *   client:ask(id)                                     asks for progress of all watches of a watch call
 *   client:trust(id)                                   trusts progress on a watch call: this server does not send
 *                                                      progress before the events that it covers
 *   client:inspect(id) -> n_answers, watches, is_paused
 *                                                      of a watch call, as in kw_watch_call_info; nothing if it ended
 *   client:next_watch() -> tag, has_changed            the next watch that is ready, or nothing: an armed one that has
 *                                                      received something, or one with has_changed: its state or
 *                                                      progress has changed, or its replica has more to take
 *   client:has_news() -> boolean                       true if something has arrived that Lua has not taken yet, or the
 *                                                      client is closed
 *   client:is_quiet() -> boolean                       true if the connection takes calls and no call has news;
 *                                                      watches may be ready
 *   client:health() -> is_ready, is_over, why, got_enhance_your_calm, data_bytes
 *                                                      is_ready: the server takes calls; is_over: the connection has
 *                                                      ended; why: a text, or nil; data_bytes: bytes of messages that
 *                                                      the server has sent, also of those that are not whole yet
 *   client:dial(now)                                   a driver in Lua has begun to connect: close then ends the
 *                                                      connection in order, and the driver calls closed. Raises if
 *                                                      the client is closed, or was dialed before
 *   client:opened(now, has_h2)                         the connection of a dialed client is open. has_h2: TLS has
 *                                                      agreed on HTTP/2
 *   client:closed(why)                                 the connection is gone: its calls end. why: a text, or nil
 *   client:feed(bytes, now)                            bytes from the socket; "": the server has closed its side
 *   client:cut(now)                                    the end of the socket's bytes, which may have been cut: see
 *                                                      face/engine.h
 *   client:pending(max) -> bytes                       bytes for the socket, at most `max`, which count as written
 *   client:state() -> wants_bytes, is_done
 *   client:deadline() -> seconds                       when step is due; nothing: never
 *   client:step(now)
 *   client:close()                                     ends the connection and its calls. What calls have received can
 *                                                      still be received if a driver has dialed the client; otherwise
 *                                                      the client is freed, and most methods raise
 *
 * A finalizer may call cancel, next, next_watch, health, has_news and is_quiet of a client that was finalized before:
 * cancel does nothing, next and next_watch return nothing, health says that the connection has ended, has_news is true,
 * and is_quiet is false.
 */
#ifndef KW_BIND_LUA_CLIENT_H
#define KW_BIND_LUA_CLIENT_H

#include "base/common.h"
#include "face/compat.h"
#include "face/engine.h"

/* Pushes the function core.client. */
void kw_bind_push_client(lua_State *L);

/* Pushes the function core.http_client, see bind/lua_fetch.h. Must be called after kw_bind_push_client. */
void kw_bind_push_http_client(lua_State *L);

/* Returns the client of the object at stack index `arg`; NULL: it is closed. */
kw_client *kw_bind_to_client(lua_State *L, int arg);

/* Returns the client of the object at stack index `arg`. Raises if the client is closed, or is an HTTP client. */
kw_client *kw_bind_check_client(lua_State *L, int arg);

/* Returns the client of a userdata for a driver that dials it, and marks the client as dialed. Returns NULL if the
 * client is closed, or was marked before. */
kw_client *kw_bind_client_of(void *object);

#endif
