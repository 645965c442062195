/* SPDX-License-Identifier: MIT
 *
 * lua_replica: fills a replica with the state and the events of its server.
 *
 * These are functions of core.inner, since only keywatch calls them:
 *
 *   load(store, state)               the first contents, before the first watch
 *   merge(store, state)              contents of a later revision: watches receive the difference
 *
 *   feed(store, subscription)        moves what a client's watch received, see rpc/feed.h; returns the number of
 *                                    events, true if there may be more to move now, and true if the
 *                                    server has sent an answer; or nil and an error
 *
 *   feed_from(store, subscription)   from now on the events of the client's watch are moved as they arrive. That watch
 *                                    is announced (client:next_watch) if its state has changed, if something is left
 *                                    for feed, if a watch of the replica has become ready, or if the deadline of the
 *                                    replica has changed
 *   announce_feed(store, flag)       with true the watch is announced after every message
 *
 * Load and merge use a core.feed_state. They do one turn's work, and return true; false, if another call must continue;
 * or nil and an error. All functions except announce_feed raise if the store is not a replica.
 */
#include "bind/lua_feed_state.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "bind/lua_subscription.h"
#include "bind/lua_value.h"
#include "rpc/feed.h"

kw_lua_store *kw_bind_enter_replica(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  if (!kw_store_is_replica(self->store)) luaL_error(L, "the store is not a replica");
  return self;
}

/* Nothing is allocated between the check of the state and its use: a finalizer could close the state. */
static int fill(lua_State *L, kw_replica_how how) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_feed_state *state = kw_bind_check_feed_state(L, 2);
  luaL_argcheck(L, state->revision > 0, 2, "the state has no page");
  int rc = kw_feed_state_use(state, self->store, how);
  if (rc != KW_UNFINISHED) return kw_bind_end(L, self, rc);
  lua_pushboolean(L, false);
  return 1;
}

static int l_load(lua_State *L) {
  return fill(L, KW_REPLICA_LOAD);
}

static int l_merge(lua_State *L) {
  return fill(L, KW_REPLICA_MERGE);
}

static int l_feed(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_subscription *sub = kw_bind_check_subscription(L, 2);
  kw_feed_moved moved = {0, 0};
  int rc = sub == NULL ? KW_OK : kw_feed_move(self->store, sub, &moved);
  bool has_more = rc == KW_OK && sub != NULL && kw_feed_has_more(sub);
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  kw_bind_push_int(L, (int64_t)moved.events);
  lua_pushboolean(L, has_more);
  lua_pushboolean(L, moved.answers > 0);
  return 3;
}

/* {====== Feeding without calls from Lua ====== */

/* A finalizer may receive bytes while an answer is being pushed: the replica must not change during the push. */
static bool begin_feeding(void *ctx) {
  kw_lua_store *self = ctx;
  if (self->is_busy || kw_store_is_inherited(self->store)) return false;
  self->deadline_before = kw_bind_step_if_due(self);
  return true;
}

/* Work that the change has made due, for example dropping old history, is done at once. */
static bool end_feeding(void *ctx) {
  kw_lua_store *self = ctx;
  bool is_same_deadline = kw_bind_step_if_due(self) == self->deadline_before;
  return self->announces_all || self->ready.first != NULL || !is_same_deadline;
}

static int l_feed_from(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_subscription *sub = kw_bind_check_subscription(L, 2);
  if (sub == NULL) return 0;
  kw_feed_join(&self->feed, self->store, sub, &(kw_feed_hooks){begin_feeding, end_feeding, self});
  return 0;
}

static int l_announce_feed(lua_State *L) {
  kw_bind_to_store(L, 1)->announces_all = lua_toboolean(L, 2);
  return 0;
}

/* }====== */

const luaL_Reg kw_bind_replica_methods[] = {{"load", l_load},
                                            {"merge", l_merge},
                                            {"feed", l_feed},
                                            {"feed_from", l_feed_from},
                                            {"announce_feed", l_announce_feed},
                                            {NULL, NULL}};
