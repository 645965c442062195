/* SPDX-License-Identifier: MIT */
#include "bind/lua_request.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/messages.h"
#include "face/module.h"
#include "model/error.h"

/* The largest request. Servers accept far less, but a table may contain one value many times. */
#define MAX_BYTES (256 << 20)

/* Limits the number of ops of a transaction, by the smallest size that they can have, without keys and values. */
#define MAX_TXN_BYTES (2 << 20)

enum { UP_ERROR_META = 1, UP_SCRATCH, UP_COUNT = UP_SCRATCH };

/* {====== Begin and end of a function ====== */

typedef struct request {
  kw_arena *arena; /* of the scratch, which replaces `self` at index 1 */
  kw_times times;
} request;

static request begin(lua_State *L) {
  if (lua_gettop(L) == 0) lua_settop(L, 1);
  request self = {.arena = kw_bind_take_scratch(L, UP_SCRATCH)};
  lua_replace(L, 1);
  return self;
}

static int end(lua_State *L, int values) {
  kw_bind_return_scratch(L, UP_SCRATCH, 1);
  return values;
}

static int encode(kw_arena *arena, const kw_message *message, const void *record, kw_slice *bytes) {
  size_t len = kw_message_size(message, record);
  if (len > MAX_BYTES) return KW_ERR_REQUEST_TOO_LARGE;
  uint8_t *to = kw_arena_alloc(arena, len);
  if (to == NULL) return KW_ERR_NO_MEMORY;
  kw_message_put(message, record, to);
  *bytes = kw_slice_of(to, len);
  return KW_OK;
}

static void push_seconds(lua_State *L, const kw_seconds *seconds) {
  if (seconds->is_given) {
    lua_pushnumber(L, seconds->value);
  } else {
    lua_pushnil(L);
  }
}

/* If `rc`, the result of reading the arguments, is KW_OK, pushes message, timeout and deadline. Else pushes nil and an
 * error, and returns false. All strings are copied before the first push: finalizers may empty the tables that have
 * them. */
static bool push_request(lua_State *L, const request *self, int rc, const kw_message *message,
                         const void *record) {
  kw_slice bytes;
  if (rc == KW_OK) rc = encode(self->arena, message, record, &bytes);
  if (rc != KW_OK) {
    kw_bind_push_failure(L, lua_upvalueindex(UP_ERROR_META), rc);
    return false;
  }
  kw_bind_push_slice(L, bytes);
  push_seconds(L, &self->times.timeout);
  push_seconds(L, &self->times.deadline);
  return true;
}

/* Ends a request without a memo. */
static int finish(lua_State *L, const request *self, int rc, const kw_message *message,
                  const void *record) {
  return end(L, push_request(L, self, rc, message, record) ? 3 : 2);
}

/* }====== */

/* {====== Keys and values ====== */

/* The memo is the key: the answer reuses the string. */
static int l_get(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_get_op(L, self.arena, &op, &self.times);
  if (!push_request(L, &self, rc, &kw_msg_range_request, &op.range)) return end(L, 2);
  lua_pushvalue(L, 2);
  return end(L, 4);
}

static int l_range(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_range_op(L, self.arena, &op, &self.times);
  return finish(L, &self, rc, &kw_msg_range_request, &op.range);
}

static int l_put(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_put_op(L, &op, &self.times);
  return finish(L, &self, rc, &kw_msg_put_request, &op.put);
}

/* The memo is true if the deleted kvs were requested. */
static int l_delete(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_delete_op(L, self.arena, &op, &self.times);
  if (!push_request(L, &self, rc, &kw_msg_delete_range_request, &op.delete)) return end(L, 2);
  lua_pushboolean(L, op.delete.prev_kv);
  return end(L, 4);
}

static size_t count_ops(const kw_op *ops, size_t n) {
  size_t sum = n;
  for (size_t i = 0; i < n; i++) {
    if (ops[i].kind != KW_OP_TXN) continue;
    sum += count_ops(ops[i].txn.success, ops[i].txn.n_success);
    sum += count_ops(ops[i].txn.failure, ops[i].txn.n_failure);
  }
  return sum;
}

static const kw_memo *remember_all(const kw_op *ops, size_t n, kw_memo **room);

/* Returns the memo of an op. The memos of inner ops are taken from *room. */
static kw_memo remember(const kw_op *op, kw_memo **room) {
  kw_memo memo = {.kind = op->kind, .is_get = op->tag == KW_BIND_GET};
  if (op->kind == KW_OP_DELETE) memo.prev_kv = op->delete.prev_kv;
  if (op->kind != KW_OP_TXN) return memo;
  memo.n_success = op->txn.n_success;
  memo.success = remember_all(op->txn.success, memo.n_success, room);
  memo.n_failure = op->txn.n_failure;
  memo.failure = remember_all(op->txn.failure, memo.n_failure, room);
  return memo;
}

static const kw_memo *remember_all(const kw_op *ops, size_t n, kw_memo **room) {
  kw_memo *memos = *room;
  *room += n;
  for (size_t i = 0; i < n; i++) memos[i] = remember(&ops[i], room);
  return memos;
}

static void push_memo(lua_State *L, const kw_op *op) {
  kw_memo *room = kw_new_object(L, KW_MEMO_NAME, count_ops(op, 1) * sizeof *room, 0);
  remember_all(op, 1, &room);
}

static int l_txn(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_txn_op(L, MAX_TXN_BYTES, self.arena, &op, &self.times);
  if (!push_request(L, &self, rc, &kw_msg_txn_request, &op.txn)) return end(L, 2);
  push_memo(L, &op);
  return end(L, 4);
}

static int l_compact(lua_State *L) {
  kw_compaction_request asked;
  request self = begin(L);
  kw_bind_read_compaction(L, &asked, &self.times);
  return finish(L, &self, KW_OK, &kw_msg_compaction_request, &asked);
}

/* }====== */

/* {====== Claims: see lua_op.h ====== */

static int l_claim(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_claim(L, self.arena, &op);
  return finish(L, &self, rc, &kw_msg_txn_request, &op.txn);
}

static int l_unclaim(lua_State *L) {
  kw_op op;
  request self = begin(L);
  int rc = kw_bind_read_unclaim(L, self.arena, &op);
  return finish(L, &self, rc, &kw_msg_txn_request, &op.txn);
}

/* }====== */

/* {====== Leases ====== */

static int l_lease_grant(lua_State *L) {
  kw_lease_message lease;
  request self = begin(L);
  kw_bind_read_grant(L, &lease, &self.times);
  return finish(L, &self, KW_OK, &kw_msg_lease_grant_request, &lease);
}

static int l_lease_revoke(lua_State *L) {
  kw_lease_message lease;
  request self = begin(L);
  kw_bind_read_lease(L, "revoke", &lease, &self.times);
  return finish(L, &self, KW_OK, &kw_msg_lease_revoke_request, &lease);
}

static int l_lease_keepalive(lua_State *L) {
  kw_lease_message lease;
  request self = begin(L);
  kw_bind_read_lease(L, "keepalive", &lease, &self.times);
  return finish(L, &self, KW_OK, &kw_msg_lease_keep_alive_request, &lease);
}

/* The memo is true if the keys were requested. */
static int l_lease_time_to_live(lua_State *L) {
  kw_lease_message lease;
  request self = begin(L);
  kw_bind_read_time_to_live(L, &lease, &self.times);
  if (!push_request(L, &self, KW_OK, &kw_msg_lease_time_to_live_request, &lease)) return end(L, 2);
  lua_pushboolean(L, lease.wants_keys);
  return end(L, 4);
}

static int l_leases(lua_State *L) {
  request self = begin(L);
  kw_bind_read_times(L, 2, "leases", &self.times);
  return finish(L, &self, KW_OK, &kw_msg_lease_leases_request, NULL);
}

/* }====== */

static const luaL_Reg requests[] = {{"get", l_get},
                                    {"range", l_range},
                                    {"put", l_put},
                                    {"delete", l_delete},
                                    {"txn", l_txn},
                                    {"compact", l_compact},
                                    {"claim", l_claim},
                                    {"unclaim", l_unclaim},
                                    {"lease_grant", l_lease_grant},
                                    {"lease_revoke", l_lease_revoke},
                                    {"lease_keepalive", l_lease_keepalive},
                                    {"lease_time_to_live", l_lease_time_to_live},
                                    {"leases", l_leases},
                                    {NULL, NULL}};

void kw_bind_push_requests(lua_State *L) {
  luaL_newmetatable(L, KW_MEMO_NAME);
  lua_pop(L, 1);
  kw_bind_add_scratch(L);
  lua_newtable(L);
  kw_bind_push_error_meta(L);
  lua_pushnil(L);
  luaL_setfuncs(L, requests, UP_COUNT);
}
