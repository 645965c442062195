/* SPDX-License-Identifier: MIT
 *
 * lua_watch: a watch of a store as a Lua object: an outlet with one watcher.
 *
 *   store:open_watch(key, options) -> watch, tag, revision
 *                                  the watch is not armed; revision: the store's. nil and an error if it fails
 *   store:next_ready() -> tag      the next armed watch that has received something; nothing if there is none
 *   watch:take(used)               the next item that the watch has received: "events", a list, and true if more events
 *                                  of the same revision follow; "progress" or "compacted", and a revision; "corrupt"
 *                                  and 0; "closed"; nothing if there is nothing now. Reuses the tables of the list
 *                                  `used`, if given
 *   watch:apply(table, n) -> revision, has_more
 *                                  applies all waiting events to a table of values by key, without the first n bytes of
 *                                  the keys. revision: of the last event, or 0; has_more: the next item has no events,
 *                                  the watch is behind, or it is closed
 *   watch:backlog() -> items, bytes, is_behind
 *                                  the waiting items and their bytes; is_behind: later steps of the store may deliver
 *                                  more events
 *   watch:arm()                    next_ready returns the watch once, when something arrives, or now if it has an item
 *   watch:disarm()                 next_ready no longer returns the watch
 *   watch:request_progress()       queues progress after all events so far, and returns its revision;
 *                                  returns false if that is not possible now. For a watch that begins later nothing is
 *                                  queued, and the store's revision is returned
 *   watch:is_blocked() -> boolean  the watcher has more events than its outlet can hold
 *   watch:has_failed() -> boolean  the watcher has failed, though the failure may not have been taken yet
 *   watch:close()                  drops what was not taken. The store closes its watches when it is closed
 *
 * The object does not keep its store alive: Lua code references both. The object never waits. If memory runs out in
 * `take`, the events stay in the outlet.
 */
#ifndef KW_BIND_LUA_WATCH_H
#define KW_BIND_LUA_WATCH_H

#include "bind/lua_store.h"

/* Creates the class of watches. open_watch and next_ready are among the methods of a store. */
void kw_bind_add_watch_class(lua_State *L);

#endif
