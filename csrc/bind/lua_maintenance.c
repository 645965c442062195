/* SPDX-License-Identifier: MIT
 *
 * lua_maintenance: compaction, status, alarms, hash and defragmentation of a store.
 *
 *   store:compact(revision, options)           -> { revision = }
 *   store:status(options)                      -> the numbers of the store, its alarms, has_failed and errors
 *   store:alarms(is_own)                       -> the names of the armed alarms, or of this member's own ones
 *   store:arm(alarm)   store:disarm(alarm)     -> true
 *   store:disarm_own(alarm)                    -> true; for services
 *   store:hash_step(records, revision, walk)   -> the hash; or false and the walk to continue with
 *   store:defragment(options)                  -> true
 */
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "store/snapshot.h"

#define LACKS_JOURNAL                                                                              \
  "keywatch: the journal was missing when the store was opened after a crash: the last writes "    \
  "may be lost"

/* {====== Compaction ====== */

static int fail_compaction(lua_State *L, kw_lua_store *self, int rc) {
  int64_t asked = kw_store_compact_requested(self->store); /* before finalizers run */
  uint64_t ticket = kw_bind_open_ticket(self);
  kw_bind_fail(L, self, rc);
  if (rc == KW_ERR_COMPACTED) kw_bind_set_int(L, "compact_revision", asked);
  return kw_bind_give(L, ticket, 2);
}

/* For a store in memory, does all steps of a physical compaction here, even if it fails because another compaction was
 * first, as in etcd. For a durable store the steps are done in Lua. */
static int l_compact(lua_State *L) {
  kw_compaction_request request;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_compaction(L, &request, NULL);
  kw_bind_push_revision(L, 0, 0);
  kw_bind_check_open(L); /* again */
  int rc = kw_store_compact(self->store, request.revision);
  if (request.physical) kw_snapshot_gather_all(self->store); /* else compactions wait for them */
  while (request.physical && !kw_store_is_durable(self->store) &&
         kw_store_is_compacting(self->store)) {
    kw_store_step(self->store, kw_bind_now(self));
  }
  return rc == KW_OK ? kw_bind_give_revision(L, self) : fail_compaction(L, self, rc);
}

/* }====== */

/* {====== Alarms ====== */

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

static int l_alarms(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_store_status status = kw_store_get_status(self->store);
  push_alarms(L, lua_toboolean(L, 2) ? status.own_alarms : status.alarms);
  return 1;
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
  return kw_bind_end_write(L, self, kw_store_arm(self->store, check_alarm(L)));
}

static int l_disarm(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  int rc = kw_store_disarm(self->store, check_alarm(L), &self->arena);
  return kw_bind_end_write(L, self, rc);
}

static int l_disarm_own(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return kw_bind_end_write(L, self, kw_store_disarm_own(self->store, check_alarm(L)));
}

/* }====== */

/* Pushes the list of current problems, as texts. */
static void push_errors(lua_State *L, const char *failure, bool lacks_journal) {
  int n = 0;
  lua_newtable(L);
  if (failure[0] != 0) {
    lua_pushstring(L, failure);
    lua_rawseti(L, -2, ++n);
  }
  if (!lacks_journal) return;
  lua_pushliteral(L, LACKS_JOURNAL);
  lua_rawseti(L, -2, ++n);
}

static int l_status(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "status", NULL);
  kw_store_status status = kw_store_get_status(self->store);
  bool is_durable = kw_store_is_durable(self->store); /* before finalizers run */
  char failure[KW_REASON_ROOM];
  kw_bind_copy_failure(self, failure);
  lua_createtable(L, 0, 10);
  if (is_durable) kw_bind_set_int(L, "commits", status.commits);
  kw_bind_set_int(L, "revision", status.revision);
  kw_bind_set_int(L, "compact_revision", status.compact_revision);
  kw_bind_set_int(L, "keys", status.keys);
  kw_bind_set_int(L, "leases", status.leases);
  kw_bind_set_int(L, "db_size", status.db_size);
  kw_bind_set_int(L, "db_size_in_use", status.db_size_in_use);
  kw_bind_set_int(L, "quota", status.quota);
  push_alarms(L, status.alarms);
  lua_setfield(L, -2, "alarms");
  kw_bind_set_bool(L, "has_failed", failure[0] != 0);
  push_errors(L, failure, status.lacks_journal);
  lua_setfield(L, -2, "errors");
  return 1;
}

static void push_hash(lua_State *L, const kw_hash_walk *walk) {
  lua_createtable(L, 0, 4);
  kw_bind_set_int(L, "hash", walk->hash.hash);
  kw_bind_set_int(L, "revision", walk->hash.revision);
  kw_bind_set_int(L, "compact_revision", walk->hash.compact_revision);
  kw_bind_set_int(L, "hash_revision", walk->hash.hash_revision);
}

static int l_hash_step(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  lua_Integer records = luaL_checkinteger(L, 2);
  kw_hash_walk walk = {.revision = lua_isnoneornil(L, 3) ? 0 : kw_bind_check_int(L, 3, 0)};
  kw_slice given = lua_isnoneornil(L, 4) ? kw_slice_of("", 0) : kw_bind_check_bytes(L, 4);
  if (given.len == sizeof walk) memcpy(&walk, given.data, given.len);
  int rc = kw_store_hash(self->store, &walk, (size_t)records);
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  if (walk.is_done) {
    push_hash(L, &walk);
    return 1;
  }
  lua_pushboolean(L, false);
  lua_pushlstring(L, (const char *)&walk, sizeof walk);
  return 2;
}

static int l_defragment(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "defragment", NULL);
  return kw_bind_end_write(L, self, kw_store_defragment(self->store));
}

const luaL_Reg kw_bind_maintenance_methods[] = {{"compact", l_compact},
                                                {"status", l_status},
                                                {"alarms", l_alarms},
                                                {"arm", l_arm},
                                                {"disarm", l_disarm},
                                                {"disarm_own", l_disarm_own},
                                                {"hash_step", l_hash_step},
                                                {"defragment", l_defragment},
                                                {NULL, NULL}};
