/* SPDX-License-Identifier: MIT
 *
 * lua_request: converts the arguments of a store's methods to the encoded requests of a client.
 *
 *   core.requests.put(self, "a", "b", { timeout = 2 }) -> "\x0a\x01a\x12\x01b", 2, nil
 *
 * core.requests has one function for each method, with the method's name and arguments; `self` is ignored. The function
 * raises for the same misuse as the method. It returns the encoded message, the timeout, the deadline and a memo; or
 * nil and an error. A timeout or deadline that was not given is nil. The memo is the information about the request that
 * core.answers needs to decode the response; most requests have none. Requests that a store would refuse are encoded,
 * too: the server refuses them.
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
