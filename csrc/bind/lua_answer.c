/* SPDX-License-Identifier: MIT */
#include "bind/lua_answer.h"

#include "base/crc32c.h"
#include "bind/lua_error.h"
#include "bind/lua_reply.h"
#include "bind/lua_request.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"
#include "codec/messages.h"
#include "model/error.h"

enum { UP_SCRATCH = KW_UP_END_, UP_COUNT = UP_SCRATCH };

enum { BYTES = 1, MEMO, SCRATCH }; /* indices on the stack */

/* {====== Begin and end of a function ====== */

static kw_arena *begin(lua_State *L) {
  luaL_checktype(L, BYTES, LUA_TSTRING);
  lua_settop(L, MEMO);
  return kw_bind_take_scratch(L, UP_SCRATCH);
}

static int end(lua_State *L, int values) {
  kw_bind_return_scratch(L, UP_SCRATCH, SCRATCH);
  return values;
}

/* A response with too many ops or fields is malformed, too. */
static int fail(lua_State *L, int rc) {
  bool is_malformed =
      rc == KW_ERR_MALFORMED || rc == KW_ERR_TOO_MANY_OPS || rc == KW_ERR_REQUEST_TOO_LARGE;
  if (is_malformed) rc = KW_ERR_MALFORMED_ANSWER;
  return end(L, kw_bind_push_failure(L, lua_upvalueindex(KW_UP_ERROR_META), rc));
}

/* }====== */

/* {====== Whether a response answers the request ====== */

/* True if the bytes are a KeyValue with a key. No key is empty. */
static bool is_kv(kw_slice bytes) {
  kw_kv kv;
  return kw_keyvalue_decode(bytes, &kv) && kv.key.len > 0;
}

static bool are_kvs(const kw_repeated *list) {
  const kw_slice *items = list->items;
  for (size_t i = 0; i < list->n; i++) {
    if (!is_kv(items[i])) return false;
  }
  return true;
}

static bool fits(const kw_memo *memo, const kw_response *response);

static bool fits_txn(const kw_memo *memo, const kw_response *response) {
  bool succeeded = response->txn.succeeded;
  const kw_memo *ops = succeeded ? memo->success : memo->failure;
  const kw_response *responses = response->txn.responses.items;
  size_t n = response->txn.responses.n;
  if (n != (succeeded ? memo->n_success : memo->n_failure)) return false;
  for (size_t i = 0; i < n; i++) {
    if (!fits(&ops[i], &responses[i])) return false;
  }
  return true;
}

static bool fits(const kw_memo *memo, const kw_response *response) {
  if (response->kind != (int)memo->kind) return false;
  switch (memo->kind) {
    case KW_OP_RANGE:
      return are_kvs(&response->range.kvs) && !(memo->is_get && response->range.kvs.n > 1);
    case KW_OP_PUT: return response->put.prev_kv.data == NULL || is_kv(response->put.prev_kv);
    case KW_OP_DELETE: return are_kvs(&response->delete.prev_kvs);
    case KW_OP_TXN: return fits_txn(memo, response);
    case KW_OP_NONE: break;
  }
  return true;
}

static int read_response(lua_State *L, kw_arena *arena, const kw_memo *memo,
                         kw_response *response) {
  *response = (kw_response){0};
  int rc = kw_response_decode(memo->kind, kw_bind_bytes(L, BYTES), arena, response);
  return rc != KW_OK || fits(memo, response) ? rc : KW_ERR_MALFORMED;
}

/* }====== */

/* {====== Keys and values ====== */

static int l_get(lua_State *L) {
  const kw_memo memo = {.kind = KW_OP_RANGE, .is_get = true};
  kw_response response;
  int rc = read_response(L, begin(L), &memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_get_response(L, &response, MEMO);
  return end(L, 1);
}

static int answer(lua_State *L, const kw_memo *memo) {
  kw_response response;
  int rc = read_response(L, begin(L), memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_response(L, memo, &response);
  return end(L, 1);
}

static int l_range(lua_State *L) {
  return answer(L, &(kw_memo){.kind = KW_OP_RANGE});
}

/* Puts the kvs into the list that is the second argument, and reuses its tables. */
static int l_page(lua_State *L) {
  const kw_memo memo = {.kind = KW_OP_RANGE};
  kw_response response;
  luaL_checktype(L, MEMO, LUA_TTABLE);
  int rc = read_response(L, begin(L), &memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_page_response(L, &response, MEMO);
  return end(L, 1);
}

static int l_put(lua_State *L) {
  return answer(L, &(kw_memo){.kind = KW_OP_PUT});
}

static int l_delete(lua_State *L) {
  return answer(L, &(kw_memo){.kind = KW_OP_DELETE, .prev_kv = lua_toboolean(L, MEMO)});
}

static int l_txn(lua_State *L) {
  return answer(L, luaL_checkudata(L, MEMO, KW_MEMO_NAME));
}

/* For compact and lease_revoke: { revision = }. */
static int l_result(lua_State *L) {
  const kw_memo memo = {.kind = KW_OP_NONE};
  kw_response response;
  int rc = read_response(L, begin(L), &memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_revision(L, response.revision, 0);
  return end(L, 1);
}

/* }====== */

/* {====== Claims: see lua_op.h ====== */

static const kw_memo claim_success[] = {{.kind = KW_OP_PUT}, {.kind = KW_OP_RANGE}};
static const kw_memo claim_failure[] = {{.kind = KW_OP_RANGE, .is_get = true},
                                        {.kind = KW_OP_RANGE}};
static const kw_memo unclaim_success[] = {{.kind = KW_OP_DELETE}};

/* Sets *kv to the first kv of the answer to a range. Returns false if there is none, or if the kv is malformed. */
static bool first_kv(const kw_response *range, kw_kv *kv) {
  const kw_slice *items = range->range.kvs.items;
  return range->range.kvs.n > 0 && kw_keyvalue_decode(items[0], kv);
}

/* Returns the create revision of the own key, true if it is the oldest key, the value that the key had already, or nil,
 * and the revision of the store. Returns false if the key was not created and does not exist. Returns nil and an error
 * if the answer is malformed: if there is an own key, there is an oldest key. */
static int l_claim(lua_State *L) {
  const kw_memo memo = {.kind = KW_OP_TXN,
                        .success = claim_success,
                        .n_success = 2,
                        .failure = claim_failure,
                        .n_failure = 2};
  kw_response response;
  kw_kv own, oldest;
  int rc = read_response(L, begin(L), &memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  const kw_response *responses = response.txn.responses.items;
  bool is_new = response.txn.succeeded;
  if (!is_new && responses[0].range.kvs.n == 0) {
    lua_pushboolean(L, false);
    return end(L, 1);
  }
  if (!is_new && !first_kv(&responses[0], &own)) return fail(L, KW_ERR_MALFORMED);
  if (!first_kv(&responses[1], &oldest)) return fail(L, KW_ERR_MALFORMED);
  int64_t created = is_new ? response.revision : own.create_revision;
  kw_bind_push_int(L, created);
  lua_pushboolean(L, oldest.create_revision == created);
  if (is_new) {
    lua_pushnil(L);
  } else {
    kw_bind_push_slice(L, own.value);
  }
  kw_bind_push_int(L, response.revision);
  return end(L, 4);
}

/* Returns whether the key was deleted. */
static int l_unclaim(lua_State *L) {
  const kw_memo memo = {.kind = KW_OP_TXN, .success = unclaim_success, .n_success = 1};
  kw_response response;
  int rc = read_response(L, begin(L), &memo, &response);
  if (rc != KW_OK) return fail(L, rc);
  lua_pushboolean(L, response.txn.succeeded);
  return end(L, 1);
}

/* }====== */

/* {====== Leases ====== */

static int read_lease(lua_State *L, const kw_message *message, kw_lease_message *lease) {
  *lease = (kw_lease_message){0};
  kw_arena *arena = begin(L);
  return kw_message_decode(message, kw_bind_bytes(L, BYTES), arena, lease);
}

static int l_lease_grant(lua_State *L) {
  kw_lease_message lease;
  int rc = read_lease(L, &kw_msg_lease_grant_response, &lease);
  if (rc != KW_OK) return fail(L, rc);
  lua_createtable(L, 0, 2);
  kw_bind_set_id(L, "id", lease.id);
  kw_bind_set_int(L, "ttl", lease.ttl);
  return end(L, 1);
}

static int l_lease_keepalive(lua_State *L) {
  kw_lease_message lease;
  int rc = read_lease(L, &kw_msg_lease_keep_alive_response, &lease);
  if (rc == KW_OK && lease.ttl <= 0) rc = KW_ERR_LEASE_NOT_FOUND;
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_int(L, lease.ttl);
  return end(L, 1);
}

static int by_bytes(const void *a, const void *b) {
  return kw_slice_compare(*(const kw_slice *)a, *(const kw_slice *)b);
}

/* etcd sends the keys unsorted, so they are sorted here. */
static int l_lease_time_to_live(lua_State *L) {
  static const kw_slice no_keys[1];
  kw_lease_message lease;
  int rc = read_lease(L, &kw_msg_lease_time_to_live_response, &lease);
  if (rc == KW_OK && lease.ttl < 0) rc = KW_ERR_LEASE_NOT_FOUND;
  if (rc != KW_OK) return fail(L, rc);
  kw_lease_info info = {.ttl = lease.ttl, .granted_ttl = lease.granted_ttl};
  if (lua_toboolean(L, MEMO)) {
    if (lease.keys.n > 1) qsort(lease.keys.items, lease.keys.n, sizeof(kw_slice), by_bytes);
    info.keys = lease.keys.n == 0 ? no_keys : lease.keys.items;
    info.n_keys = lease.keys.n;
  }
  kw_bind_push_lease(L, &info);
  return end(L, 1);
}

static int l_leases(lua_State *L) {
  kw_leases_response found = {0};
  kw_arena *arena = begin(L);
  int rc = kw_message_decode(&kw_msg_lease_leases_response, kw_bind_bytes(L, BYTES), arena, &found);
  if (rc != KW_OK) return fail(L, rc);
  kw_bind_push_ids(L, found.leases.items, found.leases.n);
  return end(L, 1);
}

/* }====== */

static int push_header(lua_State *L, kw_slice bytes) {
  kw_arena unused = {0};
  kw_header header = {0};
  if (kw_message_decode(&kw_msg_response_header, bytes, &unused, &header) != KW_OK) return 0;
  kw_bind_push_decimal(L, (uint64_t)header.cluster_id);
  kw_bind_push_decimal(L, (uint64_t)header.member_id);
  kw_bind_push_int(L, header.revision);
  kw_bind_push_uint(L, (uint64_t)header.raft_term);
  return 4;
}

int kw_bind_header(lua_State *L) {
  kw_wire_reader reader = kw_wire_read(kw_bind_check_bytes(L, 1));
  kw_wire_field found;
  while (kw_wire_next(&reader, &found)) {
    if (found.number == 1) return found.type == KW_WIRE_BYTES ? push_header(L, found.bytes) : 0;
  }
  return 0;
}

int kw_bind_kvs_crc(lua_State *L) {
  kw_wire_reader reader = kw_wire_read(kw_bind_check_bytes(L, 1));
  lua_Number from = luaL_checknumber(L, 2), to = luaL_checknumber(L, 3), at = 0;
  uint32_t crc = (uint32_t)luaL_checknumber(L, 4);
  kw_wire_field found;
  while (at < to && kw_wire_next(&reader, &found)) {
    if (found.number == 2 && found.type == KW_WIRE_BYTES && ++at >= from)
      crc = kw_crc32c(crc, found.bytes);
  }
  lua_pushnumber(L, crc);
  return 1;
}

static const luaL_Reg answers[] = {{"get", l_get},
                                   {"range", l_range},
                                   {"page", l_page},
                                   {"put", l_put},
                                   {"delete", l_delete},
                                   {"txn", l_txn},
                                   {"compact", l_result},
                                   {"claim", l_claim},
                                   {"unclaim", l_unclaim},
                                   {"lease_grant", l_lease_grant},
                                   {"lease_revoke", l_result},
                                   {"lease_keepalive", l_lease_keepalive},
                                   {"lease_time_to_live", l_lease_time_to_live},
                                   {"leases", l_leases},
                                   {NULL, NULL}};

void kw_bind_push_answers(lua_State *L) {
  luaL_checkstack(L, UP_COUNT + 4, "answers");
  kw_bind_add_scratch(L);
  lua_newtable(L);
  kw_bind_push_upvalues(L, 0);
  lua_pushnil(L);
  luaL_setfuncs(L, answers, UP_COUNT);
}
