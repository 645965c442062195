/* SPDX-License-Identifier: MIT
 *
 * lua_thread: threads, as Lua sees them from outside and from within.
 */
#ifndef KW_UV_LUA_THREAD_H
#define KW_UV_LUA_THREAD_H

#include "base/common.h"
#include "face/compat.h"

/* Adds start_thread and this_thread to the table on top of the stack. */
void kw_uv_add_threads(lua_State *L);

#endif
