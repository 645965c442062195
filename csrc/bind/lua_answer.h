/* SPDX-License-Identifier: MIT
 *
 * lua_answer: decodes the responses of a server into the values that the methods of a store return.
 *
 *   core.answers.put("\x0a\x02\x18\x07") -> { revision = 7 }
 *
 * core.answers has one function for each method, under the method's name. The function takes the response's bytes
 * and the memo that core.requests returned for the request. It returns nil and an error (code "malformed") if the
 * bytes are not such a response, or do not answer the request. core.answers.page(bytes, list) is range, with the kvs in
 * the list, whose tables are reused. lua_answer.c has the results of claim and unclaim.
 *
 *   core.header(bytes) -> cluster id and member id as decimal strings, revision and raft_term of any response
 *                         that has a header; nothing if it has none
 *   core.kvs_crc(bytes, from, to, crc) -> the CRC-32C of the kvs of a RangeResponse with the indices from `from` to
 *                         `to`, from 1 on. `crc` is that of the kvs before; 0 at the start
 */
#ifndef KW_BIND_LUA_ANSWER_H
#define KW_BIND_LUA_ANSWER_H

#include "base/common.h"
#include "face/compat.h"

/* Pushes core.answers. */
void kw_bind_push_answers(lua_State *L);

/* The function core.header. */
int kw_bind_header(lua_State *L);

/* The function core.kvs_crc. */
int kw_bind_kvs_crc(lua_State *L);

#endif
