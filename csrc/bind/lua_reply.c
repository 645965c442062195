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
  int room = 2 * KW_UP_COUNT + 2; /* luaL_setfuncs pushes the upvalues once more */
  luaL_checkstack(L, room, KW_STORE_NAME);
  luaL_getmetatable(L, KW_STORE_NAME);
  luaL_getmetatable(L, KW_DURABLE_NAME);
  kw_bind_push_error_meta(L);
  kw_bind_push_record_meta(L);
  if (push == 0) {
    lua_pushnil(L);
  } else {
    lua_pushvalue(L, push);
  }
  for (size_t i = 0; i < KW_LENGTH(names); i++) lua_pushstring(L, names[i]);
}

void kw_bind_push_record_meta(lua_State *L) {
  luaL_newmetatable(L, KW_RECORD_NAME);
}

void kw_bind_add_class(lua_State *L, const char *name, const luaL_Reg *meta,
                       const luaL_Reg *methods, lua_CFunction push) {
  kw_bind_push_upvalues(L, 0);
  lua_pushcclosure(L, push, KW_UP_COUNT);
  int push_at = lua_gettop(L);
  luaL_newmetatable(L, name);
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  kw_bind_push_upvalues(L, push_at);
  luaL_setfuncs(L, methods, KW_UP_COUNT);
  lua_setfield(L, -2, "__index");
  lua_settop(L, push_at - 1);
}

/* Pushes a table for a kv, an event or a result, with space for this many fields. */
static void push_record(lua_State *L, int fields) {
  lua_createtable(L, 0, fields);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_RECORD_META));
  lua_setmetatable(L, -2);
}

/* Sets a field of the table on top of the stack. The name is an upvalue. */
static void set_number(lua_State *L, int name, int64_t v) {
  lua_pushvalue(L, lua_upvalueindex(name));
  kw_bind_push_int(L, v);
  lua_rawset(L, -3);
}

/* Sets a field of the table on top of the stack. The name is an upvalue. */
static void set_bytes(lua_State *L, int name, kw_slice bytes) {
  lua_pushvalue(L, lua_upvalueindex(name));
  kw_bind_push_slice(L, bytes);
  lua_rawset(L, -3);
}

/* Sets all fields of a kv except its key, in the table on top of the stack. */
static void set_rest(lua_State *L, const kw_kv *kv, bool keys_only) {
  set_bytes(L, KW_UP_VALUE, keys_only ? kw_slice_of("", 0) : kv->value);
  set_number(L, KW_UP_CREATE_REVISION, kv->create_revision);
  set_number(L, KW_UP_MOD_REVISION, kv->mod_revision);
  set_number(L, KW_UP_VERSION, kv->version);
  lua_pushvalue(L, lua_upvalueindex(KW_UP_LEASE));
  kw_bind_push_id(L, kv->lease);
  lua_rawset(L, -3);
}

/* Pushes a kv. Its key is the string at index `key`, which the caller had already, unless `key` is 0. */
static void push_kv(lua_State *L, const kw_kv *kv, bool keys_only, int key) {
  push_record(L, 6);
  if (key == 0) {
    set_bytes(L, KW_UP_KEY, kv->key);
  } else {
    lua_pushvalue(L, lua_upvalueindex(KW_UP_KEY));
    lua_pushvalue(L, key);
    lua_rawset(L, -3);
  }
  set_rest(L, kv, keys_only);
}

/* {====== Events ====== */

/* Removes a field from the table on top of the stack. The name is an upvalue. */
static void unset(lua_State *L, int name) {
  lua_pushvalue(L, lua_upvalueindex(name));
  lua_pushnil(L);
  lua_rawset(L, -3);
}

/* Pushes the i-th table of the list at index `used`, without the fields that not every event has. If the list has no
 * such table, pushes a new one, and adds it to the list. */
static void push_used(lua_State *L, int used, int i, bool is_delete) {
  lua_rawgeti(L, used, i);
  if (!lua_istable(L, -1)) {
    lua_pop(L, 1);
    push_record(L, 8);
    lua_pushvalue(L, -1);
    lua_rawseti(L, used, i);
    return;
  }
  unset(L, KW_UP_PREV);
  if (!is_delete) return;
  unset(L, KW_UP_VALUE);
  unset(L, KW_UP_CREATE_REVISION);
  unset(L, KW_UP_VERSION);
  unset(L, KW_UP_LEASE);
}

void kw_bind_push_event_of(lua_State *L, bool is_delete, const kw_kv *kv, const kw_kv *prev,
                           int used, int i) {
  if (i <= KW_BIND_MAX_USED && lua_istable(L, used)) {
    push_used(L, used, i, is_delete);
  } else {
    push_record(L, is_delete ? 4 : 8);
  }
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

void kw_bind_push_event(lua_State *L, const kw_event *event, int used, int i) {
  kw_kv kv = kw_keyvalue_of(event->record), prev;
  if (event->is_delete) kv.mod_revision = event->revision;
  if (event->prev != NULL) prev = kw_keyvalue_of(event->prev);
  kw_bind_push_event_of(L, event->is_delete, &kv, event->prev == NULL ? NULL : &prev, used, i);
}

/* }====== */

static void push_list(lua_State *L, size_t n) {
  lua_createtable(L, (int)kw_min_size(n, INT_MAX), 0);
}

/* {====== Results of ops ======
 *
 * A reply of the store and a response of a server become the same tables: both are first converted to a `result`.
 */

/* A list of kvs: the records of a reply, or the encoded kvs of a response. */
typedef struct kv_list {
  const kw_blob *const *records; /* NULL: the kvs of a response */
  const kw_slice *encoded;
  size_t n;
  bool keys_only; /* values are pushed as "" */
} kv_list;

typedef struct result result;

struct result {
  kw_op_kind kind;
  bool is_get; /* a range whose only kv is the result */
  int64_t revision;
  union {
    struct {
      kv_list kvs;
      int64_t count;
      bool more;
    } range;
    struct {
      kw_slice prev_kv; /* encoded; data is NULL: there is none */
    } put;
    struct {
      kv_list prev_kvs;
      int64_t deleted;
      bool has_kvs; /* the deleted kvs were requested */
    } delete;
    struct {
      bool succeeded;
      size_t n;          /* how many ops were executed */
      const void *ops;   /* kw_op for a reply, kw_memo for a response */
      const void *inner; /* kw_reply, or kw_response */
      void (*get_inner)(const result *txn, size_t i, result *found);
    } txn;
  };
};

static kv_list list_of_records(const kw_records *records, bool keys_only) {
  return (kv_list){.records = records->items, .n = records->n, .keys_only = keys_only};
}

static kv_list list_of_encoded(const kw_repeated *kvs) {
  return (kv_list){.encoded = kvs->items, .n = kvs->n};
}

static void see_reply(const kw_op *op, const kw_reply *reply, result *found);

static void see_inner_reply(const result *txn, size_t i, result *found) {
  see_reply((const kw_op *)txn->txn.ops + i, (const kw_reply *)txn->txn.inner + i, found);
}

static void see_reply(const kw_op *op, const kw_reply *reply, result *found) {
  found->kind = op->kind;
  found->is_get = op->tag == KW_BIND_GET;
  found->revision = reply->revision;
  switch (op->kind) {
    case KW_OP_RANGE:
      found->range.kvs = list_of_records(&reply->range.kvs, reply->range.keys_only);
      found->range.count = reply->range.count;
      found->range.more = reply->range.more;
      return;
    case KW_OP_PUT:
      found->put.prev_kv =
          reply->put.prev_kv == NULL ? (kw_slice){0} : kw_blob_slice(reply->put.prev_kv);
      return;
    case KW_OP_DELETE:
      found->delete.prev_kvs = list_of_records(&reply->delete.prev_kvs, false);
      found->delete.deleted = reply->delete.deleted;
      found->delete.has_kvs = op->delete.prev_kv;
      return;
    case KW_OP_TXN:
      found->txn.succeeded = reply->txn.succeeded;
      found->txn.n = reply->txn.n;
      found->txn.ops = reply->txn.succeeded ? op->txn.success : op->txn.failure;
      found->txn.inner = reply->txn.responses;
      found->txn.get_inner = see_inner_reply;
      return;
    case KW_OP_NONE: return;
  }
}

static void see_response(const kw_memo *memo, const kw_response *response, result *found);

static void see_inner_response(const result *txn, size_t i, result *found) {
  see_response((const kw_memo *)txn->txn.ops + i, (const kw_response *)txn->txn.inner + i, found);
}

static void see_response(const kw_memo *memo, const kw_response *response, result *found) {
  found->kind = memo->kind;
  found->is_get = memo->is_get;
  found->revision = response->revision;
  switch (memo->kind) {
    case KW_OP_RANGE:
      found->range.kvs = list_of_encoded(&response->range.kvs);
      found->range.count = response->range.count;
      found->range.more = response->range.more;
      return;
    case KW_OP_PUT: found->put.prev_kv = response->put.prev_kv; return;
    case KW_OP_DELETE:
      found->delete.prev_kvs = list_of_encoded(&response->delete.prev_kvs);
      found->delete.deleted = response->delete.deleted;
      found->delete.has_kvs = memo->prev_kv;
      return;
    case KW_OP_TXN:
      found->txn.succeeded = response->txn.succeeded;
      found->txn.n = response->txn.responses.n;
      found->txn.ops = response->txn.succeeded ? memo->success : memo->failure;
      found->txn.inner = response->txn.responses.items;
      found->txn.get_inner = see_inner_response;
      return;
    case KW_OP_NONE: return;
  }
}

/* }====== */

/* {====== Pushing results ====== */

/* Decodes a KeyValue. Of a record that was damaged on the disk, returns the fields before the damage. */
static inline kw_kv kv_of(kw_slice bytes) {
  kw_kv kv;
  bool is_whole = kw_keyvalue_decode(bytes, &kv);
  (void)is_whole;
  return kv;
}

static inline kw_slice encoded_at(const kv_list *list, size_t i) {
  return list->records != NULL ? kw_blob_slice(list->records[i]) : list->encoded[i];
}

static void push_kvs(lua_State *L, const kv_list *list) {
  push_list(L, list->n);
  for (size_t i = 0; i < list->n; i++) {
    kw_kv kv = kv_of(encoded_at(list, i));
    push_kv(L, &kv, list->keys_only, 0);
    lua_rawseti(L, -2, (int)i + 1);
  }
}

/* Adds kvs to the list on top of the stack, after its first `first` ones. Reuses the tables that the list already has
 * there. */
static void refill_kvs(lua_State *L, const kv_list *list, size_t first) {
  for (size_t i = 0; i < list->n; i++) {
    kw_kv kv = kv_of(encoded_at(list, i));
    int at = (int)(first + i) + 1;
    lua_rawgeti(L, -1, at);
    if (lua_istable(L, -1)) {
      set_bytes(L, KW_UP_KEY, kv.key);
      set_rest(L, &kv, list->keys_only);
      lua_pop(L, 1);
    } else {
      lua_pop(L, 1);
      push_kv(L, &kv, list->keys_only, 0);
      lua_rawseti(L, -2, at);
    }
  }
}

/* Removes all items after the first n from the list on top of the stack. */
static void cut_list(lua_State *L, size_t n) {
  for (size_t i = lua_rawlen(L, -1); i > n; i--) {
    lua_pushnil(L);
    lua_rawseti(L, -2, (int)i);
  }
}

void kw_bind_push_revision(lua_State *L, int64_t revision, int more) {
  push_record(L, 1 + more);
  set_number(L, KW_UP_REVISION, revision);
}

/* Pushes the only kv of a get. If there is none, pushes nothing and returns false. `key` is as in push_kv. */
static bool push_get(lua_State *L, const kv_list *kvs, int key) {
  if (kvs->n == 0) return false;
  kw_kv kv = kv_of(encoded_at(kvs, 0));
  push_kv(L, &kv, kvs->keys_only, key);
  return true;
}

/* Sets the fields of a range in the table below the list of its kvs, which is on top of the stack and is popped. */
static void set_range(lua_State *L, int64_t count, bool more) {
  lua_setfield(L, -2, "kvs");
  kw_bind_set_int(L, "count", count);
  kw_bind_set_bool(L, "more", more);
}

/* Pushes the result of a range. `used` is the index of a list of kvs to be reused, or 0. */
static void push_range(lua_State *L, const result *range, int used) {
  kw_bind_push_revision(L, range->revision, 3);
  if (used == 0) {
    push_kvs(L, &range->range.kvs);
  } else {
    lua_pushvalue(L, used);
    refill_kvs(L, &range->range.kvs, 0);
    cut_list(L, range->range.kvs.n);
  }
  set_range(L, range->range.count, range->range.more);
}

void kw_bind_add_kvs(lua_State *L, const kw_reply *reply, int list, size_t first) {
  kv_list kvs = list_of_records(&reply->range.kvs, reply->range.keys_only);
  lua_pushvalue(L, list);
  refill_kvs(L, &kvs, first);
  lua_pop(L, 1);
}

void kw_bind_push_range_of(lua_State *L, const kw_reply *reply, int list, size_t n) {
  kw_bind_push_revision(L, reply->revision, 3);
  lua_pushvalue(L, list);
  cut_list(L, n);
  set_range(L, reply->range.count, reply->range.more);
}

static void push_put(lua_State *L, const result *put) {
  bool has_prev = put->put.prev_kv.data != NULL;
  kw_bind_push_revision(L, put->revision, has_prev ? 1 : 0);
  if (!has_prev) return;
  kw_kv kv = kv_of(put->put.prev_kv);
  push_kv(L, &kv, false, 0);
  lua_setfield(L, -2, "prev_kv");
}

static void push_delete(lua_State *L, const result *delete) {
  kw_bind_push_revision(L, delete->revision, 2);
  kw_bind_set_int(L, "deleted", delete->delete.deleted);
  if (!delete->delete.has_kvs) return;
  push_kvs(L, &delete->delete.prev_kvs);
  lua_setfield(L, -2, "prev_kvs");
}

static void push_result(lua_State *L, const result *found, int64_t revision);

/* Pushes the result of a transaction. `revision` is that of the outermost transaction. A get without a kv becomes
 * false, since a list must not have holes. */
static void push_txn(lua_State *L, const result *txn, int64_t revision) {
  luaL_checkstack(L, 10, "txn");
  kw_bind_push_revision(L, revision, 2);
  kw_bind_set_bool(L, "succeeded", txn->txn.succeeded);
  push_list(L, txn->txn.n);
  for (size_t i = 0; i < txn->txn.n; i++) {
    result inner;
    txn->txn.get_inner(txn, i, &inner);
    if (!inner.is_get) {
      push_result(L, &inner, revision);
    } else if (!push_get(L, &inner.range.kvs, 0)) {
      lua_pushboolean(L, false);
    }
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "responses");
}

static void push_result(lua_State *L, const result *found, int64_t revision) {
  switch (found->kind) {
    case KW_OP_RANGE: push_range(L, found, 0); return;
    case KW_OP_PUT: push_put(L, found); return;
    case KW_OP_DELETE: push_delete(L, found); return;
    case KW_OP_TXN: push_txn(L, found, revision); return;
    case KW_OP_NONE: break;
  }
  lua_pushnil(L);
}

void kw_bind_push_reply(lua_State *L, const kw_op *op, const kw_reply *reply) {
  result found;
  see_reply(op, reply, &found);
  push_result(L, &found, found.revision);
}

void kw_bind_push_response(lua_State *L, const kw_memo *memo, const kw_response *response) {
  result found;
  see_response(memo, response, &found);
  push_result(L, &found, found.revision);
}

void kw_bind_push_page(lua_State *L, const kw_op *op, const kw_reply *reply, int used) {
  result found;
  see_reply(op, reply, &found);
  push_range(L, &found, used);
}

void kw_bind_push_page_response(lua_State *L, const kw_response *response, int used) {
  result found;
  see_response(&(kw_memo){.kind = KW_OP_RANGE}, response, &found);
  push_range(L, &found, used);
}

void kw_bind_push_get(lua_State *L, const kw_reply *reply, int key) {
  kv_list kvs = list_of_records(&reply->range.kvs, reply->range.keys_only);
  if (!push_get(L, &kvs, key)) lua_pushnil(L);
}

void kw_bind_push_get_response(lua_State *L, const kw_response *response, int key) {
  kv_list kvs = list_of_encoded(&response->range.kvs);
  bool is_same = kvs.n > 0 && lua_type(L, key) == LUA_TSTRING &&
                 kw_slice_equal(kw_bind_bytes(L, key), kv_of(kvs.encoded[0]).key);
  if (!push_get(L, &kvs, is_same ? key : 0)) lua_pushnil(L);
}

/* }====== */

/* {====== Leases ====== */

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
  push_record(L, 3);
  kw_bind_set_int(L, "ttl", lease->ttl);
  kw_bind_set_int(L, "granted_ttl", lease->granted_ttl);
  if (lease->keys == NULL) return;
  push_keys(L, lease->keys, lease->n_keys);
  lua_setfield(L, -2, "keys");
}

/* }====== */
