/* SPDX-License-Identifier: MIT
 *
 * lua_watch: a watch as a Lua object: an outlet of its own, with one watcher.
 *
 * The object does not keep its store alive: that is for Lua, which holds both. It never waits: what is to be
 * waited for is asked for by `arm`, and named by the store's `next_ready`.
 */
#ifndef KW_BIND_LUA_WATCH_H
#define KW_BIND_LUA_WATCH_H

#include "bind/lua_store.h"

/* Sees to it that the store has a hub: KW_OK, or KW_ERR_NO_MEMORY. */
int kw_bind_make_hub(kw_lua_store *self);

/* Makes the class of watches. open_watch and next_ready are among the methods of a store. */
void kw_bind_add_watch_class(lua_State *L);

#endif
