/* SPDX-License-Identifier: MIT
 *
 * lua_snapshot: snapshots of a store as Lua objects, and restoring them.
 *
 *   store:open_snapshot() -> snapshot
 *   snapshot:is_ready() -> boolean; nil and an error if the snapshot has failed
 *   snapshot:size() -> number of bytes, without the hash of 32 bytes that follows them
 *   snapshot:read(at, n) -> `n` bytes, at most 1 MiB, from position `at` on, counted from 0; the hash may be read too
 *   snapshot:close()
 *   core.restore(path, directory, skip_hash_check) -> { revision =, compact_revision =, records =, leases =,
 *                                                       auth_was_enabled = }
 *                           makes the directory of a store from the snapshot in the file `path`, see store/restore.h
 *
 * open_snapshot, read and restore return nil and an error if they fail. size and read raise before the snapshot is
 * ready. A snapshot may outlive its store.
 *
 * open_snapshot does not wait for the disk: after is_ready has returned false, the store's bell rings once the
 * snapshot is ready or has failed. restore blocks the thread.
 */
#ifndef KW_BIND_LUA_SNAPSHOT_H
#define KW_BIND_LUA_SNAPSHOT_H

#include "bind/lua_store.h"

/* Creates the class of snapshots. open_snapshot is among the methods of a store. */
void kw_bind_add_snapshot_class(lua_State *L);

/* Pushes core.restore. */
void kw_bind_push_restore(lua_State *L);

#endif
