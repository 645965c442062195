/* SPDX-License-Identifier: MIT
 *
 * lua_answer: the answers that a client gets, as what the methods of a store return.
 *
 *   core.answers.put("\x0a\x02\x18\x07") -> { revision = 7 }
 *
 * A function for each method, by its name; it takes the message and the memo that came with the request. It returns
 * nil and an error ("malformed") if the bytes are no such message, or do not answer what was asked.
 *
 *   core.header(bytes) -> the cluster's id and the member's, as decimal strings, revision and raft_term of any answer
 *                         that has a header; or nothing
 */
#ifndef KW_BIND_LUA_ANSWER_H
#define KW_BIND_LUA_ANSWER_H

#include "base/common.h"
#include "face/compat.h"

/* Pushes the table of them. */
void kw_bind_push_answers(lua_State *L);

/* core.header */
int kw_bind_header(lua_State *L);

#endif
