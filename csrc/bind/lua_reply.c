/* SPDX-License-Identifier: MIT */
#include "bind/lua_reply.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"

static const char *const names[] = {
    "key",    "value", "create_revision", "mod_revision", "version", "lease",    "revision",
    "type",   "put",   "delete",          "prev",         "events",  "progress", "compacted",
    "corrupt"};

void kw_bind_push_upvalues(lua_State *L, int push) {
  int room = 2 * KW_UP_COUNT + 2; /* whoever makes functions of them pushes them once more */
  luaL_checkstack(L, room, KW_STORE_NAME);
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
static void push_kv(lua_State *L, const kw_kv *kv, bool keys_only, int key) {
  lua_createtable(L, 0, 6);
  if (key == 0) {
    set_bytes(L, KW_UP_KEY, kv->key);
  } else {
    lua_pushvalue(L, lua_upvalueindex(KW_UP_KEY));
    lua_pushvalue(L, key);
    lua_rawset(L, -3);
  }
  set_rest(L, kv, keys_only);
}

static void push_record(lua_State *L, const kw_blob *record, bool keys_only, int key) {
  kw_kv kv = kw_keyvalue_of(record);
  push_kv(L, &kv, keys_only, key);
}

void kw_bind_push_event_of(lua_State *L, bool is_delete, const kw_kv *kv, const kw_kv *prev) {
  lua_createtable(L, 0, is_delete ? 4 : 8);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_TYPE));
  lua_pushvalue(L, lua_upvalueindex(is_delete ? KW_UP_DELETE : KW_UP_PUT));
  lua_rawset(L, -3);
  set_bytes(L, KW_UP_KEY, kv->key);
  if (is_delete) {
    set_number(L, KW_UP_MOD_REVISION, kv->mod_revision);
  } else {
    set_rest(L, kv, false);
  }
  if (prev == NULL) return;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PREV));
  push_kv(L, prev, false, 0);
  lua_rawset(L, -3);
}

void kw_bind_push_event(lua_State *L, const kw_event *event) {
  kw_kv kv = kw_keyvalue_of(event->record), prev;
  if (event->is_delete) kv.mod_revision = event->revision;
  if (event->prev != NULL) prev = kw_keyvalue_of(event->prev);
  kw_bind_push_event_of(L, event->is_delete, &kv, event->prev == NULL ? NULL : &prev);
}

static void push_list(lua_State *L, size_t n) {
  lua_createtable(L, (int)kw_min_size(n, INT_MAX), 0);
}

static void push_records(lua_State *L, const kw_records *records, bool keys_only) {
  push_list(L, records->n);
  for (size_t i = 0; i < records->n; i++) {
    push_record(L, records->items[i], keys_only, 0);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

void kw_bind_push_get(lua_State *L, const kw_reply *reply, int key) {
  if (reply->range.kvs.n == 0) {
    lua_pushnil(L);
  } else {
    push_record(L, reply->range.kvs.items[0], reply->range.keys_only, key);
  }
}

void kw_bind_push_revision(lua_State *L, int64_t revision, int more) {
  lua_createtable(L, 0, 1 + more);
  set_number(L, KW_UP_REVISION, revision);
}

static void push_range(lua_State *L, const kw_reply *reply) {
  kw_bind_push_revision(L, reply->revision, 3);
  push_records(L, &reply->range.kvs, reply->range.keys_only);
  lua_setfield(L, -2, "kvs");
  kw_bind_set_int(L, "count", reply->range.count);
  kw_bind_set_bool(L, "more", reply->range.more);
}

static void push_put(lua_State *L, const kw_reply *reply) {
  kw_bind_push_revision(L, reply->revision, reply->put.prev_kv == NULL ? 0 : 1);
  if (reply->put.prev_kv == NULL) return;
  push_record(L, reply->put.prev_kv, false, 0);
  lua_setfield(L, -2, "prev_kv");
}

static void push_delete(lua_State *L, const kw_delete_op *op, const kw_reply *reply) {
  kw_bind_push_revision(L, reply->revision, 2);
  kw_bind_set_int(L, "deleted", reply->delete.deleted);
  if (!op->prev_kv) return;
  push_records(L, &reply->delete.prev_kvs, false);
  lua_setfield(L, -2, "prev_kvs");
}

static void push_txn(lua_State *L, const kw_txn_op *op, const kw_reply *reply, int64_t revision);

static void push_inner(lua_State *L, const kw_op *op, const kw_reply *reply, int64_t revision) {
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
  kw_bind_push_revision(L, revision, 2);
  kw_bind_set_bool(L, "succeeded", reply->txn.succeeded);
  push_list(L, reply->txn.n);
  for (size_t i = 0; i < reply->txn.n; i++) {
    push_inner(L, &ops[i], &reply->txn.responses[i], revision);
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

void kw_bind_push_ids(lua_State *L, const int64_t *ids, size_t n) {
  push_list(L, n);
  for (size_t i = 0; i < n; i++) {
    kw_bind_push_id(L, ids[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

static void push_keys(lua_State *L, const kw_slice *keys, size_t n) {
  push_list(L, n);
  for (size_t i = 0; i < n; i++) {
    kw_bind_push_slice(L, keys[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

void kw_bind_push_lease(lua_State *L, const kw_lease_info *lease) {
  lua_createtable(L, 0, 3);
  kw_bind_set_int(L, "ttl", lease->ttl);
  kw_bind_set_int(L, "granted_ttl", lease->granted_ttl);
  if (lease->keys == NULL) return;
  push_keys(L, lease->keys, lease->n_keys);
  lua_setfield(L, -2, "keys");
}

/* {====== Responses of a server ====== */

static kw_kv kv_of(kw_slice bytes) {
  kw_kv kv;
  bool ok = kw_keyvalue_decode(bytes, &kv);
  assert(ok);
  (void)ok;
  return kv;
}

static void push_encoded(lua_State *L, kw_slice bytes) {
  kw_kv kv = kv_of(bytes);
  push_kv(L, &kv, false, 0);
}

static void push_all_encoded(lua_State *L, const kw_repeated *kvs) {
  const kw_slice *items = kvs->items;
  push_list(L, kvs->n);
  for (size_t i = 0; i < kvs->n; i++) {
    push_encoded(L, items[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

bool kw_bind_push_only(lua_State *L, const kw_response *response, int key) {
  if (response->range.kvs.n == 0) return false;
  kw_kv kv = kv_of(*(const kw_slice *)response->range.kvs.items);
  bool is_same =
      key != 0 && lua_type(L, key) == LUA_TSTRING && kw_slice_equal(kw_bind_bytes(L, key), kv.key);
  push_kv(L, &kv, false, is_same ? key : 0);
  return true;
}

static void push_range_response(lua_State *L, const kw_response *response) {
  kw_bind_push_revision(L, response->revision, 3);
  push_all_encoded(L, &response->range.kvs);
  lua_setfield(L, -2, "kvs");
  kw_bind_set_int(L, "count", response->range.count);
  kw_bind_set_bool(L, "more", response->range.more);
}

static void push_put_response(lua_State *L, const kw_response *response) {
  bool has_prev = response->put.prev_kv.data != NULL;
  kw_bind_push_revision(L, response->revision, has_prev ? 1 : 0);
  if (!has_prev) return;
  push_encoded(L, response->put.prev_kv);
  lua_setfield(L, -2, "prev_kv");
}

static void push_delete_response(lua_State *L, const kw_memo *memo, const kw_response *response) {
  kw_bind_push_revision(L, response->revision, 2);
  kw_bind_set_int(L, "deleted", response->delete.deleted);
  if (!memo->prev_kv) return;
  push_all_encoded(L, &response->delete.prev_kvs);
  lua_setfield(L, -2, "prev_kvs");
}

static void push_txn_response(lua_State *L, const kw_memo *memo, const kw_response *response,
                              int64_t revision) {
  const kw_memo *ops = response->txn.succeeded ? memo->success : memo->failure;
  const kw_response *responses = response->txn.responses.items;
  size_t n = response->txn.responses.n;
  luaL_checkstack(L, 10, "txn");
  kw_bind_push_revision(L, revision, 2);
  kw_bind_set_bool(L, "succeeded", response->txn.succeeded);
  push_list(L, n);
  for (size_t i = 0; i < n; i++) {
    kw_bind_push_response(L, &ops[i], &responses[i], revision);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "responses");
}

void kw_bind_push_response(lua_State *L, const kw_memo *memo, const kw_response *response,
                           int64_t revision) {
  switch (memo->kind) {
    case KW_OP_RANGE:
      if (!memo->is_get) {
        push_range_response(L, response);
      } else if (!kw_bind_push_only(L, response, 0)) {
        lua_pushboolean(L, false);
      }
      return;
    case KW_OP_PUT: push_put_response(L, response); return;
    case KW_OP_DELETE: push_delete_response(L, memo, response); return;
    case KW_OP_TXN: push_txn_response(L, memo, response, revision); return;
    case KW_OP_NONE: break;
  }
  lua_pushnil(L);
}

/* }====== */
