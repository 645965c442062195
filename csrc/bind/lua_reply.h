/* SPDX-License-Identifier: MIT
 *
 * lua_reply: pushes replies of the store and responses of a server as Lua tables. Both become the same tables.
 *
 * The names of fields and the metatables are upvalues of every function that pushes: no string is looked up, and no
 * closure is made, for a reply. The functions below must only be called by a function that has these upvalues.
 */
#ifndef KW_BIND_LUA_REPLY_H
#define KW_BIND_LUA_REPLY_H

#include "base/common.h"
#include "base/blob.h"
#include "codec/response.h"
#include "face/compat.h"
#include "model/event.h"
#include "model/kv.h"
#include "model/reply.h"
#include "store/store.h"

/* The upvalues, in this order. */
enum {
  KW_UP_STORE_META = 1,
  KW_UP_DURABLE_META,
  KW_UP_ERROR_META,
  KW_UP_RECORD_META,
  KW_UP_PUSH, /* the function that pushes an answer; it is called protected */
  KW_UP_KEY,
  KW_UP_VALUE,
  KW_UP_CREATE_REVISION,
  KW_UP_MOD_REVISION,
  KW_UP_VERSION,
  KW_UP_LEASE,
  KW_UP_REVISION,
  KW_UP_TYPE,
  KW_UP_PUT,
  KW_UP_DELETE,
  KW_UP_PREV,
  KW_UP_EVENTS,
  KW_UP_PROGRESS,
  KW_UP_COMPACTED,
  KW_UP_CORRUPT,
  KW_UP_END_
};

#define KW_UP_COUNT (KW_UP_END_ - 1)

#define KW_STORE_NAME "keywatch.store"           /* the metatable of stores in memory */
#define KW_DURABLE_NAME "keywatch.store.durable" /* the metatable of durable stores */
#define KW_RECORD_NAME "keywatch.core.record"    /* the metatable of kvs, events and results */

/* Pushes the upvalues. The metatables of stores must exist already. KW_UP_PUSH is the value at index `push`; nil if
 * `push` is 0. */
void kw_bind_push_upvalues(lua_State *L, int push);

/* Pushes the metatable of kvs, events and results: lua/keywatch/support/printed.lua sets how they are printed. */
void kw_bind_push_record_meta(lua_State *L);

/* Makes a class of objects: a metatable under a name of the registry. The functions of `methods` have the upvalues,
 * those of `meta`, the metamethods, have none. `push` is the function that the methods call protected, the upvalue
 * KW_UP_PUSH. Leaves nothing on the stack. */
void kw_bind_add_class(lua_State *L, const char *name, const luaL_Reg *meta,
                       const luaL_Reg *methods, lua_CFunction push);

/* Pushes the reply to an op as the plain call of that op returns it. Inside of a transaction, a get without a kv is
 * false. */
void kw_bind_push_reply(lua_State *L, const kw_op *op, const kw_reply *reply);

/* Pushes the reply to a range, as kw_bind_push_reply does. Its kvs are in the list at index `used`, whose
 * tables are reused. */
void kw_bind_push_page(lua_State *L, const kw_op *op, const kw_reply *reply, int used);

/* Adds the kvs of the reply to a range to the list at index `list`, after its first `first` ones. The tables that the
 * list has there are reused. */
void kw_bind_add_kvs(lua_State *L, const kw_reply *reply, int list, size_t first);

/* Pushes the reply to a range, as kw_bind_push_reply does. Its kvs are the first n of the list at index `list`, from
 * which all others are removed. */
void kw_bind_push_range_of(lua_State *L, const kw_reply *reply, int list, size_t n);

#define KW_BIND_MAX_USED 256 /* tables of events that are kept for reuse */

/* Pushes an event, the i-th of its list: { type = "put" or "delete", the fields of its kv, prev }. A delete has only a
 * key and a mod_revision. If there is a list of tables at index `used`, its i-th table is reused. */
void kw_bind_push_event(lua_State *L, const kw_event *event, int used, int i);

/* Pushes an event, as kw_bind_push_event does, of kvs that are decoded already. `prev` may be NULL. */
void kw_bind_push_event_of(lua_State *L, bool is_delete, const kw_kv *kv, const kw_kv *prev,
                           int used, int i);

/* Pushes the only kv of the reply to a get, or nil. The string at index `key` must be the kv's key, and is
 * reused; with index 0 a new string is made. */
void kw_bind_push_get(lua_State *L, const kw_reply *reply, int key);

/* Pushes { revision = }, with room for `more` fields. */
void kw_bind_push_revision(lua_State *L, int64_t revision, int more);

/* Pushes a list of ids. */
void kw_bind_push_ids(lua_State *L, const int64_t *ids, size_t n);

/* Pushes { ttl =, granted_ttl =, keys = }. Without keys if lease->keys is NULL. */
void kw_bind_push_lease(lua_State *L, const kw_lease_info *lease);

/* The part of an op that a client needs to read the response. */
typedef struct kw_memo kw_memo;

struct kw_memo {
  kw_op_kind kind;
  bool is_get;            /* of a range: its result is only its kv */
  bool prev_kv;           /* of a delete: the deleted kvs were asked for */
  const kw_memo *success; /* of a transaction, as are the following */
  size_t n_success;
  const kw_memo *failure;
  size_t n_failure;
};

/* Pushes a response as the plain call of its op returns it. The response fits the memo, and its kvs are
 * well-formed. */
void kw_bind_push_response(lua_State *L, const kw_memo *memo, const kw_response *response);

/* Pushes the response to a range, as kw_bind_push_page does. Its kvs are well-formed. */
void kw_bind_push_page_response(lua_State *L, const kw_response *response, int used);

/* Pushes the only kv of the response to a get, or nil. If the value at index `key` is the kv's key, that string
 * is used again. */
void kw_bind_push_get_response(lua_State *L, const kw_response *response, int key);

#endif
