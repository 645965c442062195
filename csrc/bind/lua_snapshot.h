/* SPDX-License-Identifier: MIT
 *
 * lua_snapshot: snapshots of a store as Lua objects, and restoring them.
 *
 *   store:open_snapshot() -> snapshot
 *   snapshot:is_ready() -> boolean; nil and an error if the snapshot has failed
 *   snapshot:size() -> bytes without the hash at the end
 *   snapshot:read(at, n) -> bytes   snapshot:close()
 *   core.restore(path, directory, skip_hash_check) -> { revision =, compact_revision =, records =,
 *                                                             leases =, was_protected = }
 *
 * open_snapshot does not wait for the disk: after is_ready has returned false, the store's bell rings once the snapshot
 * is ready or has failed. restore blocks the thread.
 */
#ifndef KW_BIND_LUA_SNAPSHOT_H
#define KW_BIND_LUA_SNAPSHOT_H

#include "bind/lua_store.h"

/* Makes the class of snapshots. open_snapshot is among the methods of a store. */
void kw_bind_add_snapshot_class(lua_State *L);

/* Pushes core.restore. */
void kw_bind_push_restore(lua_State *L);

#endif
