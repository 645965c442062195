/* SPDX-License-Identifier: MIT
 *
 * lua_target: parts of the target of an HTTP request, decoded. A part whose escapes are not valid stays as it is.
 */
#ifndef KW_BIND_LUA_TARGET_H
#define KW_BIND_LUA_TARGET_H

#include "face/compat.h"

/* core.percent_decode(text): returns the text of a part of a path. */
int kw_bind_percent_decode(lua_State *L);

/* core.read_query(text): returns the values of a query by name; of several values the first one. */
int kw_bind_read_query(lua_State *L);

#endif
