/* SPDX-License-Identifier: MIT
 *
 * lua_snapshot: an image of a store as a Lua object, and the way back.
 *
 *   store:open_snapshot() -> snapshot
 *   snapshot:is_ready() -> boolean; or nil and an error, if there will be none
 *   snapshot:size()   snapshot:read(at, n) -> bytes   snapshot:close()
 *   core.restore(path, directory, skip_hash_check) -> { revision =, compact_revision =, records =, leases = }
 *
 * Nothing waits here: a server that drives the store's loop is told when a snapshot that was asked for is ready.
 */
#ifndef KW_BIND_LUA_SNAPSHOT_H
#define KW_BIND_LUA_SNAPSHOT_H

#include "bind/lua_store.h"

/* Makes the class of snapshots. open_snapshot is among the methods of a store. */
void kw_bind_add_snapshot_class(lua_State *L);

/* Pushes `restore`. */
void kw_bind_push_restore(lua_State *L);

#endif
