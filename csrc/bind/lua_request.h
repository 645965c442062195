/* SPDX-License-Identifier: MIT
 *
 * lua_request: what the methods of a store are called with, as the requests of a client.
 *
 *   core.requests.put(self, "a", "b", { timeout = 2 }) -> "\x0a\x01a\x12\x01b", 2, nil
 *
 * A function for each method, by its name and with its arguments; `self` is not looked at. It raises what the method
 * would raise. It returns the message, the timeout and the deadline, or nil for what is not given, and a memo where the
 * answer cannot be understood without; or nil and an error. What a store would refuse is left to the server to refuse.
 */
#ifndef KW_BIND_LUA_REQUEST_H
#define KW_BIND_LUA_REQUEST_H

#include "base/common.h"
#include "face/compat.h"

/* The name of the metatable of a transaction's memo: a kw_memo, with all that belongs to it behind it. */
#define KW_MEMO_NAME "keywatch.memo"

/* Pushes the table of them. */
void kw_bind_push_requests(lua_State *L);

#endif
