/* SPDX-License-Identifier: MIT
 *
 * lua_op: reads the arguments of methods, and tables, as ops of the store.
 *
 * The arguments of a method are at index 2 and above; index 1 is the object. Arrays and computed bytes lie in the
 * arena; other slices point into the Lua strings. Every function raises on misuse. A function with a result returns
 * KW_OK, or KW_ERR_NO_MEMORY if the arena could not grow. No Lua code runs during a call, as in lua_options.
 *
 * *times becomes the options `timeout` and `deadline`. If `times` is NULL, these two are checked and not stored.
 */
#ifndef KW_BIND_LUA_OP_H
#define KW_BIND_LUA_OP_H

#include "base/common.h"
#include "base/arena.h"
#include "bind/lua_options.h"
#include "codec/messages.h"
#include "face/compat.h"
#include "model/kv.h"
#include "model/op.h"
#include "watch/hub.h"

/* Reads the arguments of get: (key, options). */
int kw_bind_read_get_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);

/* Reads the arguments of range: (key, options). */
int kw_bind_read_range_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);

/* Reads the arguments of put: (key, value, options). The value may be nil with the option `ignore_value`. */
int kw_bind_read_put_op(lua_State *L, kw_op *op, kw_times *times);

/* Reads the arguments of delete: (key, options). */
int kw_bind_read_delete_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);

/* Reads the arguments of compact: (revision, options). */
void kw_bind_read_compaction(lua_State *L, kw_compaction_request *request, kw_times *times);

/* Reads the arguments of lease: (ttl, options). */
void kw_bind_read_grant(lua_State *L, kw_lease_message *lease, kw_times *times);

/* Reads the arguments of a method of one lease: (id, options). `what` names the method in errors. */
void kw_bind_read_lease(lua_State *L, const char *what, kw_lease_message *lease, kw_times *times);

/* Reads the arguments of lease_time_to_live: (id, options). */
void kw_bind_read_time_to_live(lua_State *L, kw_lease_message *lease, kw_times *times);

/* Reads the arguments of open_watch: (key, options). *max_bytes has the default, which an option may replace. */
int kw_bind_read_watch_spec(lua_State *L, kw_arena *arena, kw_watch_spec *spec, int64_t *max_bytes);

/* Reads the arguments of txn: (transaction, options). An op that is spelled `get` has the tag KW_BIND_GET.
 * Returns KW_ERR_REQUEST_TOO_LARGE if there are more ops and compares, nested ones included, than a message of
 * `max_bytes` can hold. */
int kw_bind_read_txn_op(lua_State *L, int64_t max_bytes, kw_arena *arena, kw_op *op,
                        kw_times *times);

/* Reads (prefix, key, value, lease, is_alone): the transaction that creates a key below the prefix, bound to the
 * lease, unless the key exists; with is_alone, unless there is any key below the prefix. If the key is not created,
 * the transaction reads it. In either case it then reads the name of the key below the prefix that was created first.
 * The prefix must not be empty. */
int kw_bind_read_claim(lua_State *L, kw_arena *arena, kw_op *op);

/* Reads (key, revision): the transaction that deletes a key if it was created at the revision. */
int kw_bind_read_unclaim(lua_State *L, kw_arena *arena, kw_op *op);

#define KW_BIND_GET 1 /* the tag of a range whose result is only its kv */

#endif
