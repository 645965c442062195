/* SPDX-License-Identifier: MIT
 *
 * lua_call: the gRPC calls and HTTP requests of a server that Lua answers or intercepts, as methods of the server.
 *
 *   server:mount(path, is_stream, takes_one, max_request)
 *                                       Lua answers the calls of this gRPC method, which is unary unless is_stream.
 *                                       takes_one: the client of a stream sends one request; max_request: limit of
 *                                       each request in bytes, at most that of the store
 *   server:methods() -> { [path] = request, ... }
 *                                       all methods: the name of the message that a request of a C service is,
 *                                       "" for a mounted method
 *   server:intercept()                  next_news returns every call of the C services before its method runs
 *   server:inspect()                    the same for each message of those of their calls that are not unary
 *   server:next_news() -> id, is_new, has_input, has_room, status
 *                                       the next call that has news, or nothing. status: the gRPC status with
 *                                       which the call has ended, and its id is no longer valid; nil: it is open
 *   server:info(id, now) -> path, is_stream, is_intercepted, remote, seconds, metadata, identity
 *                                       now: in seconds, CLOCK_MONOTONIC if absent; seconds: from then to the call's
 *                                       deadline, or nil; metadata: { name, value, ... };
 *                                       identity: { common name or "", organization, ... } of the client's
 *                                       verified certificate, or nil;
 *                                       nothing if the call is gone
 *   server:head(id) -> method, path, fields, remote, is_misdirected, identity
 *                                       the head of an HTTP request; nothing for another call. path: without the query;
 *                                       fields: name, 0, value, 0, and so on, beginning with :method, :scheme,
 *                                       :authority and :path; is_misdirected: the server does not serve the host
 *   server:answer(id, status, fields, body) -> is_valid
 *                                       the head of the answer to an HTTP request, and if body is a string, the whole
 *                                       answer, which finishes the request; or body: the length, or nil.
 *                                       fields: { name, value, ... }
 *   server:add_host(name)               a host name, in lower case, that requests may name, see rpc/hosts.h
 *   server:fix_answer(path, type, body) the core answers GET and HEAD of the path, see rpc/fixed_answer.h
 *   server:receive(id) -> message       nothing: no message yet, or the call is gone; false: the client has sent
 *                                       its last message
 *   server:request(id) -> message, name, max_fields
 *                                       the message of an intercepted call that `proceed` will deliver: for
 *                                       core.decode; nothing and false: as of `receive`
 *   server:send(id, message) -> has_room
 *                                       has_room: another message may follow at once; if false, next_news returns
 *                                       the call when it has room or has ended. Without memory the call is
 *                                       reset, and send raises
 *   server:finish(id, status, text)     ends the call with a gRPC status; unless calls are intercepted, next_news does
 *                                       not return the end of an HTTP request that was finished
 *   server:proceed(id)                  an intercepted call, or its next message, continues to its method
 *
 * On a closed server, mount, methods, intercept, inspect, add_host and fix_answer raise; the others find no call.
 */
#ifndef KW_BIND_LUA_CALL_H
#define KW_BIND_LUA_CALL_H

#include "face/compat.h"

/* Adds the methods to the table on top of the stack. */
void kw_bind_add_calls(lua_State *L);

#endif
