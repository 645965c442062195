/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_options.h"
#include "bind/lua_peer.h"
#include "bind/lua_reply.h"
#include "bind/lua_server.h"
#include "bind/lua_store.h"
#include "store/replica.h"

#define MIN_PROGRESS_MS 100 /* etcd's */

/* {====== Time ====== */

static int64_t now_of(const kw_lua_store *self) {
  return self->is_manual ? self->now : kw_bind_clock_ms();
}

/* The first whole millisecond that is not before this moment: what is granted from it on does not end too early. */
static int64_t later_than_now(const kw_lua_store *self) {
  return self->is_manual ? self->now : kw_bind_clock_ms() + 1;
}

static int64_t to_ms(lua_State *L, double seconds) {
  if (!(fabs(seconds) < 9e12)) luaL_error(L, "a time of %f seconds is out of reach", seconds);
  return (int64_t)llround(seconds * 1000);
}

/* }====== */

uint64_t kw_bind_new_seed(const void *self) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (uint64_t)ts.tv_sec << 32 ^ (uint64_t)ts.tv_nsec << 8 ^ (uint64_t)getpid() << 40 ^
         (uint64_t)(uintptr_t)self;
}

/* {====== The way in and out of a call ====== */

static kw_lua_store *check_self(lua_State *L) {
  kw_lua_store *self = lua_touserdata(L, 1);
  bool ok = self != NULL && lua_getmetatable(L, 1) &&
            (lua_rawequal(L, -1, lua_upvalueindex(KW_UP_STORE_META)) ||
             lua_rawequal(L, -1, lua_upvalueindex(KW_UP_DURABLE_META)));
  luaL_argcheck(L, ok, 1, KW_STORE_NAME " expected: call methods with a colon");
  lua_pop(L, 1);
  return self;
}

static bool has_metatable(lua_State *L, int arg, const char *name) {
  if (!lua_getmetatable(L, arg)) return false;
  luaL_getmetatable(L, name);
  bool is_same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return is_same;
}

kw_lua_store *kw_bind_to_store(lua_State *L, int arg) {
  if (lua_touserdata(L, arg) != NULL && has_metatable(L, arg, KW_DURABLE_NAME))
    return lua_touserdata(L, arg);
  return luaL_checkudata(L, arg, KW_STORE_NAME);
}

void kw_bind_refuse_finalizer(lua_State *L) {
  luaL_error(L, "the store is in the middle of a call, and a finalizer has to wait");
}

void kw_bind_check_idle(lua_State *L, const kw_lua_store *self) {
  if (self->is_busy) kw_bind_refuse_finalizer(L);
}

kw_lua_store *kw_bind_check_open(lua_State *L) {
  kw_lua_store *self = check_self(L);
  if (self->store == NULL) luaL_error(L, "the store is closed");
  if (kw_store_is_inherited(self->store))
    luaL_error(L, "the store is that of the parent process: open it after the fork");
  kw_bind_check_idle(L, self);
  kw_arena_reset(&self->arena);
  return self;
}

static int64_t deadline_of(const kw_lua_store *self) {
  return self->hub != NULL ? kw_hub_deadline(self->hub) : kw_store_deadline(self->store);
}

static bool step(kw_lua_store *self, int64_t now) {
  return self->hub != NULL ? kw_hub_step(self->hub, now) : kw_store_step(self->store, now);
}

/* What the disk has done is taken first. */
void kw_bind_step_if_due(kw_lua_store *self) {
  if (kw_store_is_durable(self->store) && !self->is_busy) kw_store_poll(self->store);
  int64_t deadline = deadline_of(self);
  if (deadline == KW_NEVER || self->is_busy) return;
  int64_t now = now_of(self);
  if (deadline <= now) step(self, now);
}

bool kw_bind_tend(kw_lua_store *self, double *seconds) {
  if (self->is_busy) return false;
  kw_bind_step_if_due(self);
  kw_store_flush(self->store);
  int64_t deadline = deadline_of(self), now = now_of(self);
  *seconds = deadline <= now ? 0 : (double)(deadline - now) / 1000;
  return deadline <= now || (deadline != KW_NEVER && !self->is_manual);
}

static void shut(lua_State *L, kw_lua_store *self) {
  self->must_close = false;
  kw_bind_close_servers(L, self);
  if (self->hub != NULL) kw_hub_free(self->hub);
  if (self->store != NULL) kw_store_free(self->store);
  self->hub = NULL;
  self->store = NULL;
  kw_arena_drop(&self->arena);
}

/* Every call does at most one step of what is due first. */
kw_lua_store *kw_bind_enter(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  kw_bind_step_if_due(self);
  return self;
}

int kw_bind_fail(lua_State *L, const kw_lua_store *self, int rc) {
  bool is_compacted = rc == KW_ERR_COMPACTED;
  int64_t revision =
      is_compacted ? kw_store_compact_revision(self->store) : 0; /* before finalizers run */
  kw_bind_push_failure(L, lua_upvalueindex(KW_UP_ERROR_META), rc);
  if (is_compacted) {
    kw_bind_push_int(L, revision);
    lua_setfield(L, -2, "compact_revision");
  }
  return 2;
}

static int succeed_or_fail(lua_State *L, const kw_lua_store *self, int rc) {
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  lua_pushboolean(L, true);
  return 1;
}

static void set_int(lua_State *L, const char *name, int64_t v) {
  kw_bind_push_int(L, v);
  lua_setfield(L, -2, name);
}

/* Pushes the keys and the bytes of a table: { { key, bytes }, ... }. */
static void push_rows(lua_State *L, const kw_rows *rows, kw_slice table) {
  size_t at = kw_rows_seek(rows, table);
  lua_newtable(L);
  for (int i = 1; at < rows->n; i++, at++) {
    kw_slice name = kw_blob_slice(rows->items[at].name);
    if (!kw_slice_begins(name, table)) return;
    lua_createtable(L, 2, 0);
    kw_bind_push_slice(L, kw_slice_of(name.data + table.len, name.len - table.len));
    lua_rawseti(L, -2, 1);
    kw_bind_push_slice(L, kw_blob_slice(rows->items[at].bytes));
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, i);
  }
}

static void push_row(lua_State *L, const kw_row *state) {
  if (state == NULL) {
    lua_pushnil(L);
  } else {
    kw_bind_push_slice(L, kw_blob_slice(state->bytes));
  }
}

/* Called protected: pushes the answer of the store at 1, whose key, if it is one to a get, is at 2. */
static int l_push_answer(lua_State *L) {
  const kw_lua_store *self = lua_touserdata(L, 1);
  switch (self->answer) {
    case KW_ANSWER_REPLY: kw_bind_push_reply(L, &self->op, &self->reply); break;
    case KW_ANSWER_GET: kw_bind_push_get(L, &self->reply, 2); break;
    case KW_ANSWER_IDS: kw_bind_push_ids(L, self->ids, self->n_ids); break;
    case KW_ANSWER_LEASE: kw_bind_push_lease(L, &self->lease); break;
    case KW_ANSWER_ROWS: push_rows(L, self->rows, self->row_name); break;
    case KW_ANSWER_ROW: push_row(L, kw_rows_find(self->rows, self->row_name)); break;
  }
  return 1;
}

/* The ticket of what a call has seen or changed, and is not durable yet; or 0. */
static uint64_t open_ticket(const kw_lua_store *self) {
  uint64_t ticket = kw_store_ticket(self->store);
  return kw_store_is_settled(self->store, ticket) ? 0 : ticket;
}

/* Ends a call that has left a value, or nil and an error. Adds the ticket as the third result, unless it is 0: the
 * caller has to wait for the ticket before it returns the others. */
static int give(lua_State *L, uint64_t ticket, int values) {
  if (ticket == 0) return values;
  if (values == 1) lua_pushnil(L);
  lua_pushnumber(L, (lua_Number)ticket);
  return 3;
}

/* Both end a call that may have changed something. Finalizers may close the store while an error is pushed. */

static int fail(lua_State *L, const kw_lua_store *self, int rc) {
  uint64_t ticket = open_ticket(self);
  return give(L, ticket, kw_bind_fail(L, self, rc));
}

static int finish(lua_State *L, const kw_lua_store *self, int rc) {
  uint64_t ticket = open_ticket(self);
  return give(L, ticket, succeed_or_fail(L, self, rc));
}

/* A plain read sees only what is durable. */
static bool is_read(const kw_lua_store *self, kw_answer kind) {
  return kind == KW_ANSWER_GET || (kind == KW_ANSWER_REPLY && self->op.kind == KW_OP_RANGE);
}

/* Makes the answer to a call that has come to `rc`. A write is committed only then: what cannot be answered has not
 * happened. */
static int answer(lua_State *L, kw_lua_store *self, int rc, kw_answer kind) {
  if (rc != KW_OK) return is_read(self, kind) ? kw_bind_fail(L, self, rc) : fail(L, self, rc);
  self->answer = kind;
  self->is_busy = true;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  int status = lua_pcall(L, 2, 1, 0);
  self->is_busy = false;
  if (status != 0) {
    kw_store_rollback(self->store);
  } else {
    kw_store_commit(self->store);
  }
  uint64_t ticket = is_read(self, kind) ? 0 : open_ticket(self);
  if (self->must_close) shut(L, self);
  return status != 0 ? lua_error(L) : give(L, ticket, 1);
}

/* Applies the op that was read, if that came to KW_OK, and answers it. */
static int apply(lua_State *L, kw_lua_store *self, int rc, kw_answer kind) {
  luaL_checkstack(L, 4, "answer");
  if (rc == KW_OK) rc = kw_store_apply(self->store, &self->op, &self->arena, &self->reply);
  return answer(L, self, rc, kind);
}

/* }====== */

/* {====== Keys and values ====== */

static int l_get(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_get_op(L, &self->arena, &self->op, NULL), KW_ANSWER_GET);
}

static int l_range(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_range_op(L, &self->arena, &self->op, NULL), KW_ANSWER_REPLY);
}

static int l_put(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_put_op(L, &self->op, NULL), KW_ANSWER_REPLY);
}

static int l_delete(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_delete_op(L, &self->arena, &self->op, NULL), KW_ANSWER_REPLY);
}

static int l_txn(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  int rc = kw_bind_read_txn_op(L, self->max_request_bytes, &self->arena, &self->op, NULL);
  return apply(L, self, rc, KW_ANSWER_REPLY);
}

/* Pushes { revision = 0 }, whose number can be set later without memory. */
static void push_result(lua_State *L) {
  lua_createtable(L, 0, 1);
  lua_pushinteger(L, 0);
  lua_setfield(L, -2, "revision");
}

static int finish_result(lua_State *L, kw_lua_store *self) {
  lua_pushvalue(L, lua_upvalueindex(KW_UP_REVISION));
  kw_bind_push_int(L, kw_store_applied(self->store));
  lua_rawset(L, -3);
  return give(L, open_ticket(self), 1);
}

static int fail_compaction(lua_State *L, kw_lua_store *self, int rc) {
  int64_t asked = kw_store_compact_requested(self->store); /* before finalizers run */
  uint64_t ticket = open_ticket(self);
  kw_bind_fail(L, self, rc);
  if (rc == KW_ERR_COMPACTED) set_int(L, "compact_revision", asked);
  return give(L, ticket, 2);
}

static int l_compact(lua_State *L) {
  kw_compaction_request request;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_compaction(L, &request, NULL);
  push_result(L);
  kw_bind_check_open(L); /* again: finalizers may have run */
  int rc = kw_store_compact(self->store, request.revision);
  while (request.physical && !kw_store_is_durable(self->store) &&
         kw_store_is_compacting(self->store)) {
    kw_store_step(self->store,
                  now_of(self)); /* also when another compaction was first, as in etcd */
  }
  return rc == KW_OK ? finish_result(L, self) : fail_compaction(L, self, rc);
}

/* }====== */

/* {====== Leases ====== */

static int l_lease_grant(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_grant(L, &lease, NULL);
  bool is_chosen = lease.id == 0;
  lua_createtable(L, 0, 2);
  kw_bind_push_id(L, lease.id); /* now, since it may need memory */
  lua_setfield(L, -2, "id");
  lua_pushinteger(L, 0);
  lua_setfield(L, -2, "ttl");
  lua_pushliteral(L, "id");
  lua_pushliteral(L, "ttl");
  kw_bind_check_open(L); /* again: finalizers may have run */
  int rc = kw_store_grant(self->store, later_than_now(self), &lease.id, &lease.ttl);
  if (rc != KW_OK) return fail(L, self, rc);
  kw_store_commit(self->store);
  kw_bind_push_int(L, lease.ttl);
  lua_rawset(L, -4);
  kw_bind_push_int(L, lease.id);
  if (is_chosen) lua_rawset(L, -3);
  lua_settop(L, is_chosen ? -1 : -3);
  return give(L, open_ticket(self), 1);
}

static int l_lease_revoke(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_lease(L, "revoke", &lease, NULL);
  push_result(L);
  kw_bind_check_open(L); /* again: finalizers may have run */
  int rc = kw_store_revoke(self->store, lease.id);
  if (rc != KW_OK) return fail(L, self, rc);
  kw_store_commit(self->store);
  return finish_result(L, self);
}

static int l_lease_keepalive(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_lease(L, "keepalive", &lease, NULL);
  kw_store_keepalive(self->store, later_than_now(self), lease.id, &lease.ttl);
  if (lease.ttl == 0) return kw_bind_fail(L, self, KW_ERR_LEASE_NOT_FOUND);
  kw_bind_push_int(L, lease.ttl);
  return 1;
}

static int l_lease_time_to_live(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_time_to_live(L, &lease, NULL);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_store_time_to_live(self->store, now_of(self), lease.id, lease.wants_keys,
                                 &self->arena, &self->lease);
  if (rc == KW_OK && self->lease.ttl < 0) rc = KW_ERR_LEASE_NOT_FOUND;
  return answer(L, self, rc, KW_ANSWER_LEASE);
}

static int l_leases(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "leases", NULL);
  lua_settop(L, 2);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_store_leases(self->store, &self->arena, &self->ids, &self->n_ids);
  return answer(L, self, rc, KW_ANSWER_IDS);
}

/* }====== */

/* {====== Status and alarms ====== */

static const char *const alarm_names[] = {"no_space", "corrupt", NULL};
static const kw_alarm alarms[] = {KW_ALARM_NO_SPACE, KW_ALARM_CORRUPT};

static void push_alarms(lua_State *L, unsigned armed) {
  lua_newtable(L);
  for (int i = 0, n = 0; alarm_names[i] != NULL; i++) {
    if (!(armed & alarms[i])) continue;
    lua_pushstring(L, alarm_names[i]);
    lua_rawseti(L, -2, ++n);
  }
}

/* store:alarms(): the names of all that are armed, and of those that are not only of other members. */
static int l_alarms(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_store_status status = kw_store_get_status(self->store);
  push_alarms(L, status.alarms);
  push_alarms(L, status.own_alarms);
  return 2;
}

static kw_alarm check_alarm(lua_State *L) {
  for (int i = 0; alarm_names[i] != NULL; i++) {
    if (kw_bind_is(L, 2, alarm_names[i])) return alarms[i];
  }
  luaL_argerror(L, 2, "an alarm expected: 'no_space' or 'corrupt'");
  return 0;
}

static int l_arm(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return finish(L, self, kw_store_arm(self->store, check_alarm(L)));
}

static int l_disarm(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  int rc = kw_store_disarm(self->store, check_alarm(L), &self->arena);
  return finish(L, self, rc);
}

/* For services, not for users. */
static int l_disarm_own(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return finish(L, self, kw_store_disarm_own(self->store, check_alarm(L)));
}

static int l_status(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "status", NULL);
  kw_store_status status = kw_store_get_status(self->store);
  bool is_durable = kw_store_is_durable(self->store); /* before finalizers run */
  lua_createtable(L, 0, 9);
  if (is_durable) set_int(L, "commits", status.commits);
  set_int(L, "revision", status.revision);
  set_int(L, "compact_revision", status.compact_revision);
  set_int(L, "keys", status.keys);
  set_int(L, "leases", status.leases);
  set_int(L, "db_size", status.db_size);
  set_int(L, "db_size_in_use", status.db_size_in_use);
  set_int(L, "quota", status.quota);
  push_alarms(L, status.alarms);
  lua_setfield(L, -2, "alarms");
  return 1;
}

/* store:hash_step(records, revision, walk): a part of HashKV: its result; or nil and an error; or false and the walk,
 * to go on with. */
static int l_hash_step(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  lua_Integer records = luaL_checkinteger(L, 2);
  kw_hash_walk walk = {.asked = lua_isnoneornil(L, 3) ? 0 : kw_bind_check_int(L, 3, 0)};
  kw_slice given = lua_isnoneornil(L, 4) ? kw_slice_of("", 0) : kw_bind_check_bytes(L, 4);
  if (given.len == sizeof walk) memcpy(&walk, given.data, given.len);
  int rc = kw_store_hash(self->store, &walk, (size_t)records);
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  if (!walk.is_done) {
    lua_pushboolean(L, false);
    lua_pushlstring(L, (const char *)&walk, sizeof walk);
    return 2;
  }
  lua_createtable(L, 0, 4);
  set_int(L, "hash", walk.hash.hash);
  set_int(L, "revision", walk.hash.revision);
  set_int(L, "compact_revision", walk.hash.compact_revision);
  set_int(L, "hash_revision", walk.hash.hash_revision);
  return 1;
}

static int l_defragment(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "defragment", NULL);
  return finish(L, self, kw_store_defragment(self->store));
}

/* }====== */

/* {====== Rows: for services, not for users ====== */

static kw_slice check_table(lua_State *L, int at) {
  if (lua_type(L, at) != LUA_TSTRING) luaL_error(L, "keep: the name of a table must be a string");
  kw_slice table = kw_bind_bytes(L, at);
  if (memchr(table.data, 0, table.len) != NULL)
    luaL_error(L, "keep: the name of a table must not have a zero byte");
  return table;
}

/* Reads the change on top of the stack: { table, key, bytes }, without bytes one that erases. */
static bool read_row_change(lua_State *L, kw_arena *arena, kw_row_change *change) {
  int at = lua_gettop(L);
  if (!lua_istable(L, at)) luaL_error(L, "keep: a change must be a table");
  for (int i = 1; i <= 3; i++) lua_rawgeti(L, at, i);
  kw_slice table = check_table(L, at + 1);
  change->is_erased = lua_isnil(L, at + 3);
  if (lua_type(L, at + 2) != LUA_TSTRING ||
      (!change->is_erased && lua_type(L, at + 3) != LUA_TSTRING))
    luaL_error(L, "keep: keys and bytes must be strings");
  if (!change->is_erased) change->bytes = kw_bind_bytes(L, at + 3);
  bool ok = kw_rows_name(arena, table, kw_bind_bytes(L, at + 2), &change->name);
  lua_settop(L, at);
  return ok;
}

/* store:keep{ { table, key, bytes }, { table, key }, ... }: puts and erases, all or none. */
static int l_change_rows(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checkstack(L, 8, "change_rows");
  size_t n = lua_rawlen(L, 2);
  kw_row_change *changes = kw_arena_array(&self->arena, n, sizeof *changes);
  int rc = changes == NULL ? KW_ERR_NO_MEMORY : KW_OK;
  for (size_t i = 0; i < n && rc == KW_OK; i++) {
    lua_rawgeti(L, 2, (int)i + 1);
    if (!read_row_change(L, &self->arena, &changes[i])) rc = KW_ERR_NO_MEMORY;
    lua_pop(L, 1);
  }
  if (rc == KW_OK) rc = kw_store_change_rows(self->store, changes, n);
  return finish(L, self, rc);
}

/* store:rows(table): { { key, bytes }, ... }, in order; store:rows(table, key): bytes, or nil if there are none. */
static int l_rows(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  bool is_one = !lua_isnoneornil(L, 3);
  kw_slice table = check_table(L, 2);
  kw_slice key = is_one ? kw_bind_check_bytes(L, 3) : kw_slice_of("", 0);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_store_rows(self->store, &self->rows);
  if (!kw_rows_name(&self->arena, table, key, &self->row_name)) rc = KW_ERR_NO_MEMORY;
  return answer(L, self, rc, is_one ? KW_ANSWER_ROW : KW_ANSWER_ROWS);
}

/* }====== */

/* {====== Work that is due ====== */

static int l_deadline(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int64_t deadline = deadline_of(self);
  if (deadline == KW_NEVER) {
    lua_pushnil(L);
    return 1;
  }
  if (deadline == INT64_MIN) deadline = now_of(self);
  lua_pushnumber(L, (lua_Number)deadline / 1000);
  return 1;
}

static int l_step(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int64_t now = lua_isnoneornil(L, 2) ? now_of(self) : to_ms(L, luaL_checknumber(L, 2));
  if (self->is_manual && now > self->now) self->now = now;
  lua_pushboolean(L, step(self, now > self->now ? now : self->now));
  return 1;
}

/* }====== */

/* {====== Durable stores ====== */

/* store:settled(): the ticket up to which all fates are known. */
static int l_settled(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  kw_store_poll(self->store);
  lua_pushnumber(L, (lua_Number)kw_store_settled(self->store));
  return 1;
}

/* store:outcome(ticket): true; nil and why it has not happened; or false, if that is not known yet. */
static int l_outcome(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  uint64_t ticket = (uint64_t)luaL_checknumber(L, 2);
  int rc = kw_store_outcome(self->store, ticket);
  if (rc != KW_UNSETTLED) return succeed_or_fail(L, self, rc);
  lua_pushboolean(L, false);
  return 1;
}

/* store:wait(ticket): the same, once it is known. Nothing else happens meanwhile. */
static int l_wait(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  return succeed_or_fail(L, self, kw_store_wait(self->store, (uint64_t)luaL_checknumber(L, 2)));
}

/* store:go_on(): a step of what is due; whether a compaction goes on, nil, and a ticket. */
static int l_go_on(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_store_include_background(self->store);
  lua_pushboolean(L, kw_store_is_compacting(self->store));
  return give(L, open_ticket(self), 1);
}

/* store:defragmented(): true; or nil and what the last defragmentation has failed with. */
static int l_defragmented(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  return succeed_or_fail(L, self, kw_store_defragmented(self->store));
}

/* store:set_bell(bell): which the disk rings when it has done something. */
static int l_set_bell(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  const kw_bell *bell = luaL_checkudata(L, 2, KW_BELL_NAME);
  luaL_argcheck(L, bell->ring != NULL, 2, "the bell was finalized");
  kw_store_set_bell(self->store, kw_bell_retain(bell));
  return 0;
}

/* }====== */

/* {====== Replicas ====== */

static kw_lua_store *enter_replica(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  if (!kw_store_is_replica(self->store)) luaL_error(L, "the store is not a replica");
  return self;
}

typedef int (*fill_fn)(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n);

/* There is always a next one. */
static int64_t check_revision(lua_State *L) {
  int64_t rev = kw_bind_check_int(L, 2, 1);
  luaL_argcheck(L, rev <= INT64_MAX / 2, 2, "too large for a revision");
  return rev;
}

static int fill(lua_State *L, fill_fn fn) {
  kw_lua_store *self = enter_replica(L);
  int64_t rev = check_revision(L);
  kw_kv *kvs;
  size_t n;
  int rc = kw_bind_read_kvs(L, 3, rev, &self->arena, &kvs, &n);
  if (rc == KW_OK) rc = fn(self->store, rev, kvs, n);
  kw_arena_reset(&self->arena);
  return succeed_or_fail(L, self, rc);
}

static int l_load(lua_State *L) {
  return fill(L, kw_replica_load);
}

static int l_replace(lua_State *L) {
  return fill(L, kw_replica_replace);
}

static int l_apply(lua_State *L) {
  kw_lua_store *self = enter_replica(L);
  int64_t rev = check_revision(L);
  kw_replica_event *events;
  size_t n;
  int rc = kw_bind_read_events(L, 3, rev, &self->arena, &events, &n);
  if (rc == KW_OK) rc = kw_replica_apply(self->store, rev, events, n);
  return succeed_or_fail(L, self, rc);
}

static int l_advance(lua_State *L) {
  kw_lua_store *self = enter_replica(L);
  return succeed_or_fail(L, self, kw_replica_advance(self->store, check_revision(L)));
}

/* }====== */

/* {====== Life ====== */

/* In the middle of a call the close is left to the end of that call. */
static int l_close(lua_State *L) {
  kw_lua_store *self = check_self(L);
  if (self->is_busy) {
    self->must_close = true;
  } else {
    shut(L, self);
  }
  return 0;
}

static int l_tostring(lua_State *L) {
  const kw_lua_store *self = check_self(L);
  if (self->store == NULL) {
    lua_pushliteral(L, KW_STORE_NAME "<closed>");
    return 1;
  }
  kw_store_status status = kw_store_get_status(self->store);
  lua_pushliteral(L, KW_STORE_NAME "<revision=");
  kw_bind_push_int(L, status.revision);
  lua_pushliteral(L, " keys=");
  kw_bind_push_int(L, status.keys);
  lua_pushliteral(L, ">");
  lua_concat(L, 5);
  return 1;
}

typedef struct open_fields {
  kw_store_options options;
  kw_slice path;
  kw_seconds now;
  kw_seconds progress_interval;
} open_fields;

#define OPEN_OPTION(name, kind, field)                                                             \
  { #name, KW_OPTION_##kind, offsetof(open_fields, options.field), NULL }

static int fail_with(lua_State *L, const kw_lua_store *self, int rc, const char *text) {
  kw_bind_fail(L, self, rc);
  if (text[0] != 0) {
    lua_pushstring(L, text);
    lua_setfield(L, -2, "message");
  }
  return 2;
}

/* store:read_on(n): up to n records more of a durable store that was opened; how many have been read, and of how
 * many. */
static int l_read_on(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  size_t done, total;
  char text[KW_DISK_TEXT] = "";
  int rc = kw_store_load(self->store, (size_t)luaL_checkinteger(L, 2), &done, &total, text);
  if (rc != KW_OK) return fail_with(L, self, rc, text);
  kw_bind_push_int(L, (int64_t)done);
  kw_bind_push_int(L, (int64_t)total);
  return 2;
}

static int l_open(lua_State *L) {
  static const kw_option options[] = {
      OPEN_OPTION(max_request_bytes, COUNT, max_request_bytes),
      OPEN_OPTION(max_txn_ops, COUNT, max_txn_ops),
      OPEN_OPTION(quota_backend_bytes, INT, quota),
      OPEN_OPTION(min_lease_ttl, COUNT, min_lease_ttl),
      OPEN_OPTION(step_records, COUNT, step_records),
      OPEN_OPTION(replica, BOOL, replica),
      OPEN_OPTION(history_bytes, COUNT, history_bytes),
      {"path", KW_OPTION_BYTES, offsetof(open_fields, path), NULL},
      {"now", KW_OPTION_SECONDS, offsetof(open_fields, now), NULL},
      {"progress_interval", KW_OPTION_SECONDS, offsetof(open_fields, progress_interval), NULL},
      KW_END_OF_OPTIONS};
  open_fields fields = {.options = kw_store_defaults()};
  kw_bind_read_options(L, 1, "open", options, &fields);
  if (fields.path.len > 0 && memchr(fields.path.data, 0, fields.path.len) != NULL)
    luaL_error(L, "open: path must not have a zero byte");
  if (fields.options.replica && fields.path.data != NULL)
    luaL_error(L, "open: a replica is in memory");
  if (fields.options.step_records == 0) luaL_error(L, "open: step_records must not be 0");
  if (fields.options.min_lease_ttl > KW_LEASE_MAX_TTL)
    luaL_error(L, "open: min_lease_ttl is too large");
  int64_t now = fields.now.is_given ? to_ms(L, fields.now.value) : 0;
  int64_t progress_ms = KW_DEFAULT_PROGRESS_MS;
  if (fields.progress_interval.is_given) progress_ms = to_ms(L, fields.progress_interval.value);
  if (progress_ms < MIN_PROGRESS_MS) progress_ms = MIN_PROGRESS_MS;
  if (fields.path.data != NULL)
    kw_bind_push_field(L, 1, "path"); /* finalizers may empty the options */
  kw_lua_store *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (kw_lua_store){.is_manual = fields.now.is_given,
                         .now = now,
                         .progress_ms = progress_ms,
                         .max_request_bytes = fields.options.max_request_bytes};
  bool is_durable = fields.path.data != NULL;
  lua_pushvalue(L, lua_upvalueindex(is_durable ? KW_UP_DURABLE_META : KW_UP_STORE_META));
  lua_setmetatable(L, -2);
  char text[KW_DISK_TEXT] = "";
  fields.options.seed = kw_bind_new_seed(self);
  fields.options.path = (const char *)fields.path.data; /* Lua's strings end with a 0 */
  int rc = kw_store_open(&fields.options, now_of(self), &self->store, text);
  return rc == KW_OK ? 1 : fail_with(L, self, rc, text);
}

/* }====== */

static const luaL_Reg store_methods[] = {{"get", l_get},
                                         {"range", l_range},
                                         {"put", l_put},
                                         {"delete", l_delete},
                                         {"txn", l_txn},
                                         {"compact", l_compact},
                                         {"lease_grant", l_lease_grant},
                                         {"lease_revoke", l_lease_revoke},
                                         {"lease_keepalive", l_lease_keepalive},
                                         {"lease_time_to_live", l_lease_time_to_live},
                                         {"leases", l_leases},
                                         {"status", l_status},
                                         {"hash_step", l_hash_step},
                                         {"defragment", l_defragment},
                                         {"alarms", l_alarms},
                                         {"arm", l_arm},
                                         {"disarm", l_disarm},
                                         {"disarm_own", l_disarm_own},
                                         {"change_rows", l_change_rows},
                                         {"rows", l_rows},
                                         {"deadline", l_deadline},
                                         {"step", l_step},
                                         {"load", l_load},
                                         {"replace", l_replace},
                                         {"apply", l_apply},
                                         {"advance", l_advance},
                                         {"close", l_close},
                                         {NULL, NULL}};

static const luaL_Reg durable_methods[] = {
    {"read_on", l_read_on},   {"settled", l_settled},
    {"outcome", l_outcome},   {"wait", l_wait},
    {"go_on", l_go_on},       {"defragmented", l_defragmented},

    {"set_bell", l_set_bell}, {NULL, NULL}};

static const luaL_Reg store_meta[] = {
    {"__gc", l_close}, {"__close", l_close}, {"__tostring", l_tostring}, {NULL, NULL}};

static const luaL_Reg store_open[] = {{"open", l_open}, {NULL, NULL}};

static void push_metatable(lua_State *L, const char *name, int methods) {
  luaL_newmetatable(L, name);
  lua_pushliteral(L, KW_STORE_NAME);
  lua_setfield(L, -2, "__name");
  lua_pushvalue(L, methods);
  lua_setfield(L, -2, "__index");
}

void kw_bind_push_store(lua_State *L) {
  int base = lua_gettop(L), open = base + 1, methods = base + 2, durable = base + 3;
  int meta = base + 4, durable_meta = base + 5, push = base + 6;
  luaL_checkstack(L, 12, KW_STORE_NAME);
  lua_newtable(L);
  lua_newtable(L);
  lua_newtable(L);
  push_metatable(L, KW_STORE_NAME, methods);
  push_metatable(L, KW_DURABLE_NAME, durable);
  lua_newtable(L); /* what the durable one does not have in its own way is as in any */
  lua_pushvalue(L, methods);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, durable);

  kw_bind_push_upvalues(L, 0);
  lua_pushcclosure(L, l_push_answer, KW_UP_COUNT);

  const struct {
    int table;
    const luaL_Reg *functions;
  } parts[] = {{meta, store_meta},
               {durable_meta, store_meta},
               {methods, store_methods},
               {durable, durable_methods},
               {open, store_open}};
  for (size_t i = 0; i < KW_LENGTH(parts); i++) {
    lua_pushvalue(L, parts[i].table);
    kw_bind_push_upvalues(L, push);
    luaL_setfuncs(L, parts[i].functions, KW_UP_COUNT);
    lua_pop(L, 1);
  }
  lua_getfield(L, open, "open");
  lua_replace(L, open);
  lua_settop(L, durable);
}

#ifdef KW_PROBE

kw_lua_store *kw_bind_check_store(lua_State *L, int arg) {
  kw_lua_store *self = kw_bind_to_store(L, arg);
  luaL_argcheck(L, self->store != NULL, arg, "the store is closed");
  return self;
}

#endif
