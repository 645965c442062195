/* SPDX-License-Identifier: MIT */
#include "bind/lua_reply.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"

static const char *const names[] = {
    "key",  "value", "create_revision", "mod_revision", "version", "lease", "revision",
    "type", "put",   "delete",          "prev"};

void kw_bind_push_upvalues(lua_State *L, int push) {
  luaL_checkstack(L, KW_UP_COUNT + 2, KW_STORE_NAME);
  luaL_getmetatable(L, KW_STORE_NAME);
  luaL_getmetatable(L, KW_DURABLE_NAME);
  kw_bind_push_error_meta(L);
  if (push == 0) {
    lua_pushnil(L);
  } else {
    lua_pushvalue(L, push);
  }
  for (size_t i = 0; i < KW_LENGTH(names); i++) lua_pushstring(L, names[i]);
}

/* Sets a field of the table below to the value on top; the name is an upvalue. */
static void set_number(lua_State *L, int name, int64_t v) {
  lua_pushvalue(L, lua_upvalueindex(name));
  kw_bind_push_int(L, v);
  lua_rawset(L, -3);
}

static void set_bytes(lua_State *L, int name, kw_slice bytes) {
  lua_pushvalue(L, lua_upvalueindex(name));
  kw_bind_push_slice(L, bytes);
  lua_rawset(L, -3);
}

/* Sets all fields of a kv but its key. */
static void set_rest(lua_State *L, const kw_kv *kv, bool keys_only) {
  set_bytes(L, KW_UP_VALUE, keys_only ? kw_slice_of("", 0) : kv->value);
  set_number(L, KW_UP_CREATE_REVISION, kv->create_revision);
  set_number(L, KW_UP_MOD_REVISION, kv->mod_revision);
  set_number(L, KW_UP_VERSION, kv->version);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_LEASE));
  kw_bind_push_id(L, kv->lease);
  lua_rawset(L, -3);
}

/* The key is the string at `key` where that is not 0: an asker's own string need not be made again. */
static void push_kv(lua_State *L, const kw_blob *record, bool keys_only, int key) {
  kw_kv kv = kw_keyvalue_of(record);
  lua_createtable(L, 0, 6);
  if (key == 0) {
    set_bytes(L, KW_UP_KEY, kv.key);
  } else {
    lua_pushvalue(L, lua_upvalueindex(KW_UP_KEY));
    lua_pushvalue(L, key);
    lua_rawset(L, -3);
  }
  set_rest(L, &kv, keys_only);
}

void kw_bind_push_event(lua_State *L, const kw_event *event) {
  kw_kv kv = kw_keyvalue_of(event->record);
  lua_createtable(L, 0, event->is_delete ? 4 : 8);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_TYPE));
  lua_pushvalue(L, lua_upvalueindex(event->is_delete ? KW_UP_DELETE : KW_UP_PUT));
  lua_rawset(L, -3);
  set_bytes(L, KW_UP_KEY, kv.key);
  if (event->is_delete) {
    set_number(L, KW_UP_MOD_REVISION, event->revision);
  } else {
    set_rest(L, &kv, false);
  }
  if (event->prev == NULL) return;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PREV));
  push_kv(L, event->prev, false, 0);
  lua_rawset(L, -3);
}

static void push_kvs(lua_State *L, const kw_records *records, bool keys_only) {
  lua_createtable(L, (int)kw_min_size(records->n, INT_MAX), 0);
  for (size_t i = 0; i < records->n; i++) {
    push_kv(L, records->items[i], keys_only, 0);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

void kw_bind_push_get(lua_State *L, const kw_reply *reply, int key) {
  if (reply->range.kvs.n == 0) {
    lua_pushnil(L);
  } else {
    push_kv(L, reply->range.kvs.items[0], reply->range.keys_only, key);
  }
}

static void push_range(lua_State *L, const kw_reply *reply) {
  lua_createtable(L, 0, 4);
  set_number(L, KW_UP_REVISION, reply->revision);
  push_kvs(L, &reply->range.kvs, reply->range.keys_only);
  lua_setfield(L, -2, "kvs");
  kw_bind_push_int(L, reply->range.count);
  lua_setfield(L, -2, "count");
  lua_pushboolean(L, reply->range.more);
  lua_setfield(L, -2, "more");
}

static void push_put(lua_State *L, const kw_reply *reply) {
  lua_createtable(L, 0, reply->put.prev_kv == NULL ? 1 : 2);
  set_number(L, KW_UP_REVISION, reply->revision);
  if (reply->put.prev_kv == NULL) return;
  push_kv(L, reply->put.prev_kv, false, 0);
  lua_setfield(L, -2, "prev_kv");
}

static void push_delete(lua_State *L, const kw_delete_op *op, const kw_reply *reply) {
  lua_createtable(L, 0, 3);
  set_number(L, KW_UP_REVISION, reply->revision);
  kw_bind_push_int(L, reply->delete.deleted);
  lua_setfield(L, -2, "deleted");
  if (!op->prev_kv) return;
  push_kvs(L, &reply->delete.prev_kvs, false);
  lua_setfield(L, -2, "prev_kvs");
}

static void push_txn(lua_State *L, const kw_txn_op *op, const kw_reply *reply, int64_t revision);

static void push_response(lua_State *L, const kw_op *op, const kw_reply *reply, int64_t revision) {
  if (op->kind == KW_OP_TXN) {
    push_txn(L, &op->txn, reply, revision);
  } else if (op->tag != KW_BIND_GET) {
    kw_bind_push_reply(L, op, reply);
  } else if (reply->range.kvs.n == 0) {
    lua_pushboolean(L, false);
  } else {
    kw_bind_push_get(L, reply, 0);
  }
}

/* A nested transaction has the revision of the whole. */
static void push_txn(lua_State *L, const kw_txn_op *op, const kw_reply *reply, int64_t revision) {
  const kw_op *ops = reply->txn.succeeded ? op->success : op->failure;
  luaL_checkstack(L, 10, "txn");
  lua_createtable(L, 0, 3);
  set_number(L, KW_UP_REVISION, revision);
  lua_pushboolean(L, reply->txn.succeeded);
  lua_setfield(L, -2, "succeeded");
  lua_createtable(L, (int)reply->txn.n, 0);
  for (size_t i = 0; i < reply->txn.n; i++) {
    push_response(L, &ops[i], &reply->txn.responses[i], revision);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "responses");
}

void kw_bind_push_reply(lua_State *L, const kw_op *op, const kw_reply *reply) {
  switch (op->kind) {
    case KW_OP_RANGE: push_range(L, reply); return;
    case KW_OP_PUT: push_put(L, reply); return;
    case KW_OP_DELETE: push_delete(L, &op->delete, reply); return;
    case KW_OP_TXN: push_txn(L, &op->txn, reply, reply->revision); return;
    case KW_OP_NONE: break;
  }
  lua_pushnil(L);
}
