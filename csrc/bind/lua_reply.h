/* SPDX-License-Identifier: MIT
 *
 * lua_reply: replies of the store as Lua tables.
 *
 * Names of fields and metatables are upvalues of every function that pushes: no string is looked up, and
 * no closure is made, for a reply.
 */
#ifndef KW_BIND_LUA_REPLY_H
#define KW_BIND_LUA_REPLY_H

#include "base/common.h"
#include "base/blob.h"
#include "face/compat.h"
#include "model/event.h"
#include "model/reply.h"

/* The upvalues that methods of the store share, in this order. */
enum {
  KW_UP_STORE_META = 1,
  KW_UP_DURABLE_META,
  KW_UP_ERROR_META,
  KW_UP_PUSH, /* pushes the reply of a write, under protection */
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
  KW_UP_END_
};

#define KW_UP_COUNT (KW_UP_END_ - 1)

#define KW_STORE_NAME "keywatch.store"           /* of its metatable, which has to be there */
#define KW_DURABLE_NAME "keywatch.store.durable" /* likewise, of a durable one */

/* Pushes all of them; what pushes answers stands at `push`, or is not needed if that is 0. */
void kw_bind_push_upvalues(lua_State *L, int push);

/* The reply to an op, as the plain call of that op returns it. */
void kw_bind_push_reply(lua_State *L, const kw_op *op, const kw_reply *reply);

/* An event: { type = "put" or "delete", the fields of its kv, prev }. A delete has a key and a mod_revision only. */
void kw_bind_push_event(lua_State *L, const kw_event *event);

/* The only kv of the reply to a get, or nil. `key` is where the key stands as a string, or 0. */
void kw_bind_push_get(lua_State *L, const kw_reply *reply, int key);

#endif
