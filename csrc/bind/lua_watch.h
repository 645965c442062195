/* SPDX-License-Identifier: MIT
 *
 * lua_watch: a watch of a store as a Lua object: an outlet of its own with one watcher.
 *
 *   store:open_watch(key, options) -> watch, tag, the store's revision
 *   store:next_ready() -> tag      the next armed watch that has received something; nothing if there is none
 *   watch:take()                   the next of what the watch was told: "events" and a list; "progress", "compacted"
 *                                  or "corrupt", and a revision; "closed"; nothing if there is nothing now
 *   watch:arm()   watch:disarm()   next_ready names the watch when something comes; and no longer
 *   watch:request_progress()       queues progress behind everything that has happened: the revision; false if that
 *                                  is not possible now. A watch that begins later needs no progress
 *   watch:is_blocked() -> boolean  the watcher has more events than its outlet can hold
 *   watch:has_failed() -> boolean  the watcher has failed, though the failure may not have been taken yet
 *   watch:close()
 *
 * The object does not keep its store alive: Lua holds both. The object never waits. If memory runs out in `take`, the
 * events stay in the outlet.
 */
#ifndef KW_BIND_LUA_WATCH_H
#define KW_BIND_LUA_WATCH_H

#include "bind/lua_store.h"

/* Makes the hub of the store, unless it has one. Returns KW_OK or KW_ERR_NO_MEMORY. */
int kw_bind_make_hub(kw_lua_store *self);

/* Makes the class of watches. open_watch and next_ready are among the methods of a store. */
void kw_bind_add_watch_class(lua_State *L);

#endif
