/* SPDX-License-Identifier: MIT
 *
 * lua_replica: how a replica takes its revisions from upstream.
 *
 *   store:load(revision, kvs)        the first contents
 *   store:replace(revision, kvs)     new contents in place of the old ones
 *   store:apply(revision, events)    the events of one revision; revisions may be skipped
 *   store:advance(revision)          revisions without events
 *
 * Each returns true, or nil and an error. Each raises if the store is not a replica.
 */
#include "bind/lua_op.h"
#include "bind/lua_result.h"
#include "bind/lua_store.h"

typedef int (*fill_fn)(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n);

static kw_lua_store *enter_replica(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  if (!kw_store_is_replica(self->store)) luaL_error(L, "the store is not a replica");
  return self;
}

/* Returns argument 2. It is small enough that there is always a next revision. */
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
  return kw_bind_end(L, self, rc);
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
  return kw_bind_end(L, self, rc);
}

static int l_advance(lua_State *L) {
  kw_lua_store *self = enter_replica(L);
  return kw_bind_end(L, self, kw_replica_advance(self->store, check_revision(L)));
}

const luaL_Reg kw_bind_replica_methods[] = {{"load", l_load},
                                            {"replace", l_replace},
                                            {"apply", l_apply},
                                            {"advance", l_advance},
                                            {NULL, NULL}};
