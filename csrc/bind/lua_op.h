/* SPDX-License-Identifier: MIT
 *
 * lua_op: arguments and tables of Lua as ops of the store.
 *
 * Arrays and computed bytes go to the arena; other slices point into the Lua strings. Each raises on misuse, and
 * returns KW_OK, or KW_ERR_NO_MEMORY if the arena could not grow. As in lua_options, no Lua code runs meanwhile, and
 * `times` may be NULL.
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

/* From the arguments of a method: (self, key, [value,] options). */
int kw_bind_read_get_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);
int kw_bind_read_range_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);
int kw_bind_read_put_op(lua_State *L, kw_op *op, kw_times *times);
int kw_bind_read_delete_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times);

/* Likewise, as the records of their messages: (self, revision, options), (self, ttl, options), and (self, id, options)
 * of any other method of leases that has an id. */
void kw_bind_read_compaction(lua_State *L, kw_compaction_request *request, kw_times *times);
void kw_bind_read_grant(lua_State *L, kw_lease_message *lease, kw_times *times);
void kw_bind_read_lease(lua_State *L, const char *what, kw_lease_message *lease, kw_times *times);
void kw_bind_read_time_to_live(lua_State *L, kw_lease_message *lease, kw_times *times);

int kw_bind_read_watch_spec(lua_State *L, kw_arena *arena, kw_watch_spec *spec, int64_t *max_bytes);

/* From the arguments of txn. Ops that were spelled `get` have the tag KW_BIND_GET. More of them and of compares, nested
 * ones counted, than a message of `max_bytes` could have are KW_ERR_REQUEST_TOO_LARGE. */
int kw_bind_read_txn_op(lua_State *L, int64_t max_bytes, kw_arena *arena, kw_op *op,
                        kw_times *times);

#define KW_BIND_GET 1 /* a range that is answered by its kv alone */

#endif
