/* SPDX-License-Identifier: MIT
 *
 * lua_feed_state: the state of a range, gathered from the pages that a server has sent, as a Lua object. A replica is
 * loaded or merged with it.
 *
 *   core.feed_state(key, range_end) -> state       without kvs
 *   state:add(page, is_part) -> true, has_more, count   adds an encoded RangeResponse, or a part of a range stream.
 *                                                  count: its kvs. nil and an error if that fails
 *   state:last() -> key, revision, count           of the kvs that were added; revision 0: none
 *   state:close()                                  frees the kvs
 */
#ifndef KW_BIND_LUA_FEED_STATE_H
#define KW_BIND_LUA_FEED_STATE_H

#include "base/common.h"
#include "face/compat.h"
#include "rpc/feed.h"

/* Pushes the function core.feed_state. */
void kw_bind_push_feed_state(lua_State *L);

/* Returns the state at index i. Raises if there is none, or if it is closed. */
kw_feed_state *kw_bind_check_feed_state(lua_State *L, int i);

#endif
