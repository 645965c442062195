/* SPDX-License-Identifier: MIT
 *
 * lua_replica: how a replica takes its revisions from upstream.
 *
 * These are functions of core.inner, since only keywatch calls them:
 *
 *   load(store, revision, kvs)       the first contents. `kvs` is sorted by key
 *   replace(store, revision, kvs)    new contents in place of the old ones, also of an earlier revision. Watches fail
 *   merge(store, revision, kvs)      contents of a later revision: watches receive the difference
 *   apply(store, revision, events)   the events of one revision; revisions may be skipped
 *   advance(store, revision)         revisions without events
 *
 *   feed(store, subscription)        moves what a client's watch received, see rpc/feed.h; returns the number of
 *                                    events, true if there may be more to move now, and true if the server was heard
 *
 *   feed_from(store, subscription)   from now on the watch's events go to the replica as they come. The watch is
 *                                    announced (client:next_watch) if its state has changed, something is left for
 *                                    feed, a watch of the replica has become ready, or the time of the work
 *                                    that is due has changed
 *   announce_feed(store, flag)       with true the watch is announced whenever something has come
 *
 * Revision and kvs may be a core.feed_state instead, as the only argument: then one turn's work is done, and false
 * means that another call must continue. Each returns true, or nil and an error, unless it says otherwise. Each raises
 * if the store is not a replica.
 */
#include "bind/lua_feed_state.h"
#include "bind/lua_list.h"
#include "bind/lua_options.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "bind/lua_subscription.h"
#include "rpc/feed.h"

/* {====== Reading kvs and events ====== */

typedef struct event_fields {
  int type;
  kw_kv kv;
} event_fields;

static const char *const event_types[] = {"put", "delete", NULL};

#define KV_FIELD(name, kind)                                                                       \
  { #name, KW_OPTION_##kind, offsetof(event_fields, kv.name), NULL }

#define KV_FIELDS                                                                                  \
  KV_FIELD(key, BYTES), KV_FIELD(value, BYTES), KV_FIELD(create_revision, COUNT),                  \
      KV_FIELD(mod_revision, COUNT), KV_FIELD(version, COUNT), KV_FIELD(lease, ID)

static void check_kv(lua_State *L, const char *what, const kw_kv *kv) {
  if (kv->key.len == 0) luaL_error(L, "%s: has no key", what);
  if (kv->value.data == NULL) luaL_error(L, "%s: has no value", what);
  if (kv->create_revision < 1 || kv->version < 1 || kv->mod_revision < kv->create_revision) {
    luaL_error(L, "%s: revisions and version must be positive, and mod not before create", what);
  }
}

static int read_kvs(lua_State *L, int arg, int64_t rev, kw_arena *arena, kw_kv **kvs, size_t *n) {
  static const kw_option fields[] = {KV_FIELDS, KW_END_OF_OPTIONS};
  luaL_checktype(L, arg, LUA_TTABLE);
  lua_settop(L, arg);
  *n = kw_bind_check_list(L, arg, "kvs");
  *kvs = kw_arena_array(arena, *n, sizeof **kvs);
  if (*kvs == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < *n; i++) {
    event_fields found = {0};
    kw_element_name what = kw_bind_push_element(L, "kvs", i);
    kw_bind_read_options(L, -1, what.text, fields, &found);
    check_kv(L, what.text, &found.kv);
    if (found.kv.mod_revision > rev)
      luaL_error(L, "%s: is newer than the revision to load", what.text);
    if (i > 0 && kw_slice_compare((*kvs)[i - 1].key, found.kv.key) >= 0) {
      luaL_error(L, "%s: kvs must be in order, each key once", what.text);
    }
    (*kvs)[i] = found.kv;
    lua_pop(L, 1);
  }
  return KW_OK;
}

static void check_event(lua_State *L, const char *what, int64_t rev, event_fields *found) {
  if (found->type < 0) luaL_error(L, "%s: has no type", what);
  if (found->kv.key.len == 0) luaL_error(L, "%s: has no key", what);
  if (found->kv.mod_revision == 0) found->kv.mod_revision = rev;
  if (found->kv.mod_revision != rev) luaL_error(L, "%s: is not of this revision", what);
  if (found->type == 0) check_kv(L, what, &found->kv);
}

static int read_events(lua_State *L, int arg, int64_t rev, kw_arena *arena,
                       kw_replica_event **events, size_t *n) {
  static const kw_option fields[] = {
      {"type", KW_OPTION_ENUM, offsetof(event_fields, type), event_types},
      KV_FIELDS,
      {"prev", KW_OPTION_ANY, KW_NOWHERE, NULL},
      KW_END_OF_OPTIONS};
  luaL_checktype(L, arg, LUA_TTABLE);
  lua_settop(L, arg);
  *n = kw_bind_check_list(L, arg, "events");
  *events = kw_arena_array(arena, *n, sizeof **events);
  if (*events == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < *n; i++) {
    event_fields found = {.type = -1};
    kw_element_name what = kw_bind_push_element(L, "events", i);
    kw_bind_read_options(L, -1, what.text, fields, &found);
    check_event(L, what.text, rev, &found);
    (*events)[i] = (kw_replica_event){.is_delete = found.type == 1, .kv = found.kv};
    lua_pop(L, 1);
  }
  return KW_OK;
}

/* }====== */

kw_lua_store *kw_bind_enter_replica(lua_State *L) {
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

/* Nothing that allocates comes between the look at the state and its use. */
static int fill_from(lua_State *L, kw_replica_how how) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_feed_state *state = kw_bind_to_feed_state(L, 2);
  luaL_argcheck(L, state->revision > 0, 2, "the state has no page");
  int rc = kw_feed_state_use(state, self->store, how);
  if (rc != KW_UNFINISHED) return kw_bind_end(L, self, rc);
  lua_pushboolean(L, false);
  return 1;
}

static int fill(lua_State *L, kw_replica_how how) {
  if (kw_bind_to_feed_state(L, 2) != NULL) return fill_from(L, how);
  kw_lua_store *self = kw_bind_enter_replica(L);
  int64_t rev = check_revision(L);
  kw_kv *kvs;
  size_t n;
  int rc = read_kvs(L, 3, rev, &self->arena, &kvs, &n);
  if (rc == KW_OK) rc = kw_replica_use(self->store, how, rev, kvs, n);
  kw_arena_reset(&self->arena);
  return kw_bind_end(L, self, rc);
}

static int l_load(lua_State *L) {
  return fill(L, KW_REPLICA_LOAD);
}

static int l_replace(lua_State *L) {
  return fill(L, KW_REPLICA_REPLACE);
}

static int l_merge(lua_State *L) {
  return fill(L, KW_REPLICA_MERGE);
}

static int l_apply(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  int64_t rev = check_revision(L);
  kw_replica_event *events;
  size_t n;
  int rc = read_events(L, 3, rev, &self->arena, &events, &n);
  if (rc == KW_OK) rc = kw_replica_apply(self->store, rev, events, n);
  return kw_bind_end(L, self, rc);
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

/* {====== Feeding by itself ====== */

/* A finalizer may have the bytes received while an answer is being pushed: the replica must then stay as it is. */
static bool begin_feeding(void *ctx) {
  kw_lua_store *self = ctx;
  if (self->is_busy || kw_store_is_inherited(self->store)) return false;
  self->deadline_then = kw_bind_step_if_due(self);
  return true;
}

/* Work that the change has made due, such as dropping old history, is done at once. */
static bool end_feeding(void *ctx) {
  kw_lua_store *self = ctx;
  bool is_due_then = kw_bind_step_if_due(self) == self->deadline_then;
  return self->is_followed || self->ready.first != NULL || !is_due_then;
}

static int l_feed_from(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_subscription *sub = kw_bind_check_subscription(L, 2);
  if (sub == NULL) return 0;
  kw_feed_join(&self->feed, self->store, sub, &(kw_feed_hooks){begin_feeding, end_feeding, self});
  return 0;
}

static int l_announce_feed(lua_State *L) {
  kw_bind_to_store(L, 1)->is_followed = lua_toboolean(L, 2);
  return 0;
}

/* }====== */

static int l_advance(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  return kw_bind_end(L, self, kw_replica_advance(self->store, check_revision(L)));
}

const luaL_Reg kw_bind_replica_methods[] = {{"load", l_load},
                                            {"replace", l_replace},
                                            {"merge", l_merge},
                                            {"apply", l_apply},
                                            {"advance", l_advance},
                                            {"feed", l_feed},
                                            {"feed_from", l_feed_from},
                                            {"announce_feed", l_announce_feed},
                                            {NULL, NULL}};
