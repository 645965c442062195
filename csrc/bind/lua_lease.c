/* SPDX-License-Identifier: MIT
 *
 * lua_lease: the leases of a store.
 *
 *   store:lease_grant(ttl, options)         -> { id =, ttl = }
 *   store:lease_keepalive(id, options)      -> ttl
 *   store:describe_lease(id, options)       -> { ttl =, granted_ttl =, keys = a read, if wanted }
 *   store:open_leases(options)              -> a read of all leases
 *   store:list_more(list, read, is_whole)   adds to the list; -> false if there is more to read; else the list, and
 *                                           a ticket if there is one; or nil and an error. Makes one turn of the
 *                                           read; with is_whole all of it
 *
 * For keepers of leases, see lua/keywatch/store/keeper.lua:
 *
 *   store:tag_lease(id, tag)   once the lease has ended, next_ended returns the tag, a whole number; 0: removes the tag
 *   store:next_ended()         -> the tag of a lease that has ended, and true if it has expired; nothing if there is
 *                              none, or if the store is closed
 */
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "store/lease_read.h"

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

static int l_lease_keepalive(lua_State *L) {
  kw_lease_message lease;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_lease(L, "keepalive", &lease, NULL);
  kw_store_keepalive(self->store, kw_bind_now_rounded_up(self), lease.id, &lease.ttl);
  if (lease.ttl == 0) return kw_bind_fail(L, self, KW_ERR_LEASE_NOT_FOUND);
  kw_bind_push_int(L, lease.ttl);
  return 1;
}

/* {====== Lists ====== */

#define LIST_NAME "keywatch.core.lease_read"
#define LIST_VISITS (KW_WORK_TURN / 4) /* as in lua_read.c */

typedef struct lua_list {
  kw_lease_read *read; /* NULL: closed */
  bool has_keys;
  size_t n; /* items in Lua's list */
} lua_list;

static lua_list *push_list(lua_State *L, bool has_keys) {
  lua_list *list = kw_new_object(L, LIST_NAME, sizeof *list, 0);
  list->has_keys = has_keys;
  return list;
}

static int l_describe_lease(lua_State *L) {
  kw_lease_message lease;
  kw_lease_info info;
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_time_to_live(L, &lease, NULL);
  lua_list *list = lease.wants_keys ? push_list(L, true) : NULL;
  kw_bind_push_lease(L, &(kw_lease_info){0});
  kw_bind_check_open(L); /* again: finalizers may have run */
  kw_store_time_to_live(self->store, kw_bind_now(self), lease.id, &info);
  if (info.ttl < 0) return kw_bind_fail_write(L, self, KW_ERR_LEASE_NOT_FOUND);
  if (list != NULL) list->read = kw_lease_read_new_keys(self->store, lease.id);
  if (list != NULL && list->read == NULL) return kw_bind_fail_write(L, self, KW_ERR_NO_MEMORY);
  uint64_t ticket = kw_bind_open_ticket(self);
  kw_bind_set_int(L, "ttl", info.ttl);
  kw_bind_set_int(L, "granted_ttl", info.granted_ttl);
  if (list != NULL) {
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "keys");
  }
  return kw_bind_give(L, ticket, 1);
}

static int l_open_leases(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_bind_read_times(L, 2, "leases", NULL);
  lua_list *list = push_list(L, false);
  list->read = kw_lease_read_new();
  return list->read == NULL ? kw_bind_fail(L, self, KW_ERR_NO_MEMORY) : 1;
}

static bool push_next(lua_State *L, lua_list *list) {
  kw_slice key;
  int64_t id;
  if (list->has_keys && kw_lease_read_next_key(list->read, &key)) {
    kw_bind_push_slice(L, key);
  } else if (!list->has_keys && kw_lease_read_next_id(list->read, &id)) {
    kw_bind_push_id(L, id);
  } else {
    return false;
  }
  return true;
}

/* Adds items to the list at index 2. Returns false if there are no more. */
static bool add_items(lua_State *L, lua_list *list, kw_work *work) {
  while (kw_work_is_left(work)) {
    if (!push_next(L, list)) return false;
    lua_rawseti(L, 2, (int)++list->n);
    kw_work_spend(work, 0);
  }
  return true;
}

static int l_list_more(lua_State *L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_list *list = luaL_checkudata(L, 3, LIST_NAME);
  luaL_argcheck(L, list->read != NULL, 3, "the read is closed");
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  if (self->store == NULL) return kw_bind_fail(L, self, KW_ERR_CLOSED);
  kw_bind_enter(L);
  bool is_whole = lua_toboolean(L, 4);
  kw_work work = is_whole ? kw_work_without_end() : (kw_work){.left = LIST_VISITS};
  if (is_whole) kw_store_finish(self->store);
  luaL_checkstack(L, 4, "list");
  int rc = kw_lease_read_step(self->store, list->read, &work);
  if (rc < 0) return kw_bind_fail_write(L, self, rc);
  if (rc == KW_UNFINISHED || add_items(L, list, &work)) {
    lua_pushboolean(L, false);
    return 1;
  }
  uint64_t ticket = kw_lease_read_ticket(list->read);
  bool is_open = self->store != NULL; /* a finalizer may have closed it */
  if (!is_open || kw_store_outcome(self->store, ticket) == KW_OK) ticket = 0;
  lua_pushvalue(L, 2);
  return kw_bind_give(L, ticket, 1);
}

static int l_close_list(lua_State *L) {
  lua_list *list = luaL_checkudata(L, 1, LIST_NAME);
  if (list->read != NULL) kw_lease_read_free(list->read);
  list->read = NULL;
  return 0;
}

void kw_bind_add_lease_class(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_close_list}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"close", l_close_list}, {NULL, NULL}};
  kw_add_class(L, LIST_NAME, meta, methods);
}

/* }====== */

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

const luaL_Reg kw_bind_lease_methods[] = {
    {"lease_grant", l_lease_grant},       {"lease_keepalive", l_lease_keepalive},
    {"describe_lease", l_describe_lease}, {"open_leases", l_open_leases},
    {"list_more", l_list_more},           {"tag_lease", l_tag_lease},
    {"next_ended", l_next_ended},         {NULL, NULL}};
