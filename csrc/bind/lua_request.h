/* SPDX-License-Identifier: MIT
 *
 * lua_request: encodes the arguments of a store's methods as the requests of a client.
 *
 *   core.requests.put(self, "a", "b", { timeout = 2 }) -> "\x0a\x01a\x12\x01b", 2, nil
 *
 * core.requests has one function for each method, under the method's name and with its arguments; `self` is
 * ignored. The function raises the same misuse as the method. It returns the message, the timeout and the deadline
 * (nil if not given), and a memo if core.answers needs one to decode the response; or nil and an error. Requests
 * that a store would refuse are encoded: the server refuses them.
 */
#ifndef KW_BIND_LUA_REQUEST_H
#define KW_BIND_LUA_REQUEST_H

#include "base/common.h"
#include "face/compat.h"

/* The metatable of a transaction's memo: a kw_memo, with the memos of the inner ops behind it. */
#define KW_MEMO_NAME "keywatch.memo"

/* Pushes core.requests. */
void kw_bind_push_requests(lua_State *L);

#endif
