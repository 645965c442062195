/* SPDX-License-Identifier: MIT
 *
 * lua_lease: the leases of a store.
 *
 *   store:lease_grant(ttl, options)         -> { id =, ttl = }
 *   store:lease_revoke(id, options)         -> { revision = }
 *   store:lease_keepalive(id, options)      -> ttl
 *   store:lease_time_to_live(id, options)   -> { ttl =, granted_ttl =, keys = }
 *   store:leases(options)                   -> a list of ids
 *
 * For keepers of leases, see lua/keywatch/store/keeper.lua:
 *
 *   store:tag_lease(id, tag)   once the lease has ended, next_ended gives the tag, a whole number; 0: gives nothing
 *   store:next_ended()         -> the tag of a lease that has ended, and whether its time was over; nil if there is
 *                              none, or if the store is closed
 */
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"

/* Pushes { id =, ttl = 0 } and the names "id" and "ttl", so that nothing is allocated once the lease is granted. */
static void push_room_for_grant(lua_State *L, int64_t id) {
  lua_createtable(L, 0, 2);
  kw_bind_push_id(L, id);
  lua_setfield(L, -2, "id");
  lua_pushinteger(L, 0);
  lua_setfield(L, -2, "ttl");
  lua_pushliteral(L, "id");
  lua_pushliteral(L, "ttl");
}

static int l_lease_grant(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_grant(L, &lease, NULL);
  bool is_chosen = lease.id == 0; /* the store chooses the id */
  push_room_for_grant(L, lease.id);
  kw_bind_check_open(L); /* again: finalizers may have run */
  int rc = kw_store_grant(self->store, kw_bind_now_rounded_up(self), &lease.id, &lease.ttl);
  if (rc != KW_OK) return kw_bind_fail_write(L, self, rc);
  kw_store_commit(self->store);
  kw_bind_push_int(L, lease.ttl);
  lua_rawset(L, -4);
  kw_bind_push_int(L, lease.id);
  if (is_chosen) lua_rawset(L, -3);
  lua_settop(L, is_chosen ? -1 : -3);
  return kw_bind_give(L, kw_bind_open_ticket(self), 1);
}

static int l_lease_revoke(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_lease(L, "revoke", &lease, NULL);
  kw_bind_push_revision(L, 0, 0);
  kw_bind_check_open(L); /* again: finalizers may have run */
  int rc = kw_store_revoke(self->store, lease.id);
  if (rc != KW_OK) return kw_bind_fail_write(L, self, rc);
  kw_store_commit(self->store);
  return kw_bind_give_revision(L, self);
}

static int l_lease_keepalive(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_lease(L, "keepalive", &lease, NULL);
  kw_store_keepalive(self->store, kw_bind_now_rounded_up(self), lease.id, &lease.ttl);
  if (lease.ttl == 0) return kw_bind_fail(L, self, KW_ERR_LEASE_NOT_FOUND);
  kw_bind_push_int(L, lease.ttl);
  return 1;
}

static int l_lease_time_to_live(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_time_to_live(L, &lease, NULL);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_store_time_to_live(self->store, kw_bind_now(self), lease.id, lease.wants_keys,
                                 &self->arena, &self->lease);
  if (rc == KW_OK && self->lease.ttl < 0) rc = KW_ERR_LEASE_NOT_FOUND;
  return kw_bind_answer(L, self, rc, KW_ANSWER_LEASE);
}

static int l_leases(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "leases", NULL);
  lua_settop(L, 2);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_store_leases(self->store, &self->arena, &self->leases);
  return kw_bind_answer(L, self, rc, KW_ANSWER_IDS);
}

static int l_tag_lease(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_store_tag_lease(self->store, kw_bind_check_id(L, 2), kw_bind_check_int(L, 3, 0));
  return 0;
}

static int l_next_ended(lua_State *L) {
  int64_t tag;
  bool has_expired;
  kw_lua_store *self = kw_bind_to_store(L, 1);
  if (self->store == NULL || !kw_store_next_ended(self->store, &tag, &has_expired)) return 0;
  kw_bind_push_int(L, tag);
  lua_pushboolean(L, has_expired);
  return 2;
}

const luaL_Reg kw_bind_lease_methods[] = {{"lease_grant", l_lease_grant},
                                          {"lease_revoke", l_lease_revoke},
                                          {"lease_keepalive", l_lease_keepalive},
                                          {"lease_time_to_live", l_lease_time_to_live},
                                          {"leases", l_leases},
                                          {"tag_lease", l_tag_lease},
                                          {"next_ended", l_next_ended},
                                          {NULL, NULL}};
