/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>

#include "bind/lua_server.h"

#include "bind/lua_broadcast.h"
#include "bind/lua_call.h"
#include "bind/lua_client.h"
#include "bind/lua_error.h"
#include "bind/lua_metrics.h"
#include "bind/lua_notes.h"
#include "bind/lua_options.h"
#include "bind/lua_peer.h"
#include "bind/lua_reply.h"
#include "bind/lua_texts.h"
#include "face/module.h"
#include "rpc/client.h"
#include "rpc/notes.h"
#include "rpc/peer.h"

#define PEER_NAME "keywatch.core.peer"
#define WHY 128 /* bytes of the text why a peer ends */
#define MAX_SECONDS 9e12

/* {====== The engine ====== */

static kw_server *server_of(void *object) {
  const kw_lua_server *self = object;
  return self->is_open ? self->server : NULL;
}

static const kw_engine engine = {.version = KW_ENGINE_VERSION,
                                 .accepted = &kw_accepted_face,
                                 .server_of = server_of,
                                 .step_server = kw_server_step,
                                 .set_bell = kw_server_set_bell,
                                 .has_work = kw_server_has_work,
                                 .is_busy = kw_server_is_busy,
                                 .accept = kw_peer_open,
                                 .accept_failed = kw_notes_accept_failed,
                                 .refuse = kw_peer_refuse,
                                 .identify = kw_peer_identify,
                                 .gone = kw_peer_note_gone,
                                 .dialed = &kw_dialed_face,
                                 .client_of = kw_bind_client_of,
                                 .dial = kw_client_dial,
                                 .opened = kw_client_opened,
                                 .has_news = kw_client_has_news};

/* }====== */

/* {====== Servers ====== */

static kw_lua_server *check_server(lua_State *L) {
  return luaL_checkudata(L, 1, KW_SERVER_NAME);
}

static kw_server *check_open(lua_State *L) {
  kw_lua_server *self = check_server(L);
  if (!self->is_open) luaL_error(L, "the server is closed");
  return self->server;
}

static int l_close(lua_State *L) {
  kw_bind_close_server(L, check_server(L));
  return 0;
}

static int l_gc(lua_State *L) {
  kw_lua_server *self = check_server(L);
  kw_bind_close_server(L, self);
  if (self->server != NULL) kw_server_free(self->server);
  self->server = NULL;
  return 0;
}

typedef struct serve_fields {
  uint64_t cluster_id;
  uint64_t member_id;
  int64_t raft_term;
  int64_t max_concurrent_streams;
  int64_t max_queued;
  int64_t quota_connection_bytes;
  bool measures_handling;
  kw_seconds handshake_timeout;
  kw_seconds keepalive_min_time;
  kw_seconds keepalive_interval;
  kw_seconds keepalive_timeout;
} serve_fields;

#define SERVE_OPTION(name, kind)                                                                   \
  { #name, KW_OPTION_##kind, offsetof(serve_fields, name), NULL }

static void set_ms(int64_t *ms, const kw_seconds *seconds) {
  if (seconds->is_given && fabs(seconds->value) < MAX_SECONDS)
    *ms = seconds->value < 0 ? 0 : llround(seconds->value * 1000);
}

/* `store` may be NULL. */
static kw_server_options read_options(lua_State *L, const kw_lua_store *store) {
  static const kw_option list[] = {SERVE_OPTION(cluster_id, BITS),
                                   SERVE_OPTION(member_id, BITS),
                                   SERVE_OPTION(raft_term, COUNT),
                                   SERVE_OPTION(max_concurrent_streams, COUNT),
                                   SERVE_OPTION(max_queued, COUNT),
                                   SERVE_OPTION(quota_connection_bytes, COUNT),
                                   SERVE_OPTION(measures_handling, BOOL),
                                   SERVE_OPTION(handshake_timeout, SECONDS),
                                   SERVE_OPTION(keepalive_min_time, SECONDS),
                                   SERVE_OPTION(keepalive_interval, SECONDS),
                                   SERVE_OPTION(keepalive_timeout, SECONDS),
                                   KW_END_OF_OPTIONS};
  kw_server_options options = kw_server_defaults();
  serve_fields fields = {.cluster_id = options.cluster_id,
                         .member_id = options.member_id,
                         .raft_term = (int64_t)options.raft_term,
                         .max_concurrent_streams = options.session.max_streams,
                         .max_queued = (int64_t)options.session.max_queued,
                         .quota_connection_bytes = (int64_t)options.connection_quota};
  kw_bind_read_options(L, 2, "serve", list, &fields);
  options.cluster_id = fields.cluster_id;
  options.member_id = fields.member_id;
  options.raft_term = (uint64_t)fields.raft_term;
  options.measures_handling = fields.measures_handling;
  options.connection_quota = (size_t)fields.quota_connection_bytes;
  if (fields.max_concurrent_streams < options.session.max_streams)
    options.session.max_streams = (uint32_t)fields.max_concurrent_streams;
  kw_session_set_queue(&options.session, (size_t)fields.max_queued);
  set_ms(&options.session.handshake_ms, &fields.handshake_timeout);
  set_ms(&options.session.ping_min_ms, &fields.keepalive_min_time);
  set_ms(&options.session.keepalive_ms, &fields.keepalive_interval);
  set_ms(&options.session.keepalive_wait_ms, &fields.keepalive_timeout);
  if (store == NULL) return options;
  options.session.max_message = (size_t)store->max_request_bytes + KW_RECEIVE_SLACK;
  options.max_fragment = options.session.max_message;
  options.others = &store->ready;
  options.clock = store->is_manual ? &store->now : NULL;
  options.is_busy = &store->is_busy;
  return options;
}

static int push_no_memory(lua_State *L) {
  kw_bind_push_error_meta(L);
  return kw_bind_push_failure(L, lua_gettop(L), KW_ERR_NO_MEMORY);
}

static int serve_nothing(lua_State *L, kw_lua_server *self) {
  kw_server_options options = read_options(L, NULL);
  self->server = kw_server_new(NULL, NULL, &options);
  self->is_open = self->server != NULL;
  return self->is_open ? 1 : push_no_memory(L);
}

static int l_serve(lua_State *L) {
  lua_settop(L, 2);
  kw_lua_server *self = kw_new_object(L, KW_SERVER_NAME, sizeof *self, 0);
  if (lua_isnil(L, 1)) return serve_nothing(L, self);
  kw_lua_store *store = kw_bind_to_store(L, 1);
  luaL_argcheck(L, store->store != NULL, 1, "the store is closed");
  kw_bind_check_idle(L, store);
  kw_server_options options = read_options(L, store);
  lua_pushvalue(L, 1);
  int ref = luaL_ref(L, LUA_REGISTRYINDEX);
  if (kw_bind_make_hub(store) == KW_OK)
    self->server = kw_server_new(store->store, store->hub, &options);
  if (self->server == NULL) {
    luaL_unref(L, LUA_REGISTRYINDEX, ref);
    return push_no_memory(L);
  }
  self->is_open = true;
  self->store = store;
  self->store_ref = ref;
  self->next = store->servers;
  self->prev = &store->servers;
  if (self->next != NULL) self->next->prev = &self->next;
  store->servers = self;
  return 1;
}

static int l_drain(lua_State *L) {
  kw_server *server = check_open(L);
  double seconds = luaL_optnumber(L, 2, KW_DRAIN_MS / 1000.0);
  luaL_argcheck(L, seconds >= 0 && seconds < MAX_SECONDS, 2, "seconds expected");
  kw_server_drain(server, llround(seconds * 1000), kw_bind_opt_now(L, 3));
  return 0;
}

static int l_held(lua_State *L) {
  const kw_server *server = check_server(L)->server;
  kw_bind_push_int(L, server == NULL ? 0 : (int64_t)kw_server_held(server));
  return 1;
}

static int l_connections(lua_State *L) {
  const kw_server *server = check_server(L)->server;
  kw_bind_push_int(L, server == NULL ? 0 : (int64_t)kw_server_count(server));
  return 1;
}

/* }====== */

/* {====== Peers that Lua drives ====== */

typedef struct lua_peer {
  kw_peer *peer; /* NULL: closed */
  int64_t deadline;
  size_t max_turn; /* limit of messages handled in one turn; 0: none */
  size_t n_turn;   /* messages handled in this turn */
  bool is_dirty;
} lua_peer;

static void on_dirty(void *ctx) {
  ((lua_peer *)ctx)->is_dirty = true;
}

static void on_deadline(void *ctx, int64_t when) {
  ((lua_peer *)ctx)->deadline = when;
}

static bool is_turn_over(void *ctx) {
  lua_peer *self = ctx;
  self->n_turn++;
  return self->max_turn > 0 && self->n_turn >= self->max_turn;
}

static lua_peer *check_peer(lua_State *L) {
  lua_peer *self = luaL_checkudata(L, 1, PEER_NAME);
  if (self->peer == NULL) luaL_error(L, "the connection is closed");
  return self;
}

/* Raises also if the store is in the middle of a call. */
static lua_peer *check_idle_peer(lua_State *L) {
  lua_peer *self = check_peer(L);
  if (kw_peer_is_busy(self->peer)) kw_bind_refuse_finalizer(L, "store");
  return self;
}

static int l_accept(lua_State *L) {
  int64_t now = kw_bind_opt_now(L, 2);
  lua_Integer max_turn = luaL_optinteger(L, 3, 0);
  const char *remote = luaL_optstring(L, 4, "");
  kw_peer_hooks hooks = {
      .on_dirty = on_dirty, .on_deadline = on_deadline, .is_turn_over = is_turn_over};
  lua_peer *self = kw_new_object(L, PEER_NAME, sizeof *self, 0);
  *self = (lua_peer){.deadline = INT64_MAX, .max_turn = (size_t)max_turn};
  hooks.ctx = self;
  snprintf(hooks.remote, sizeof hooks.remote, "%s", remote);
  self->peer = kw_peer_open(check_open(L), &hooks, now); /* now: finalizers may have run */
  return self->peer == NULL ? 0 : 1;
}

static int l_step(lua_State *L) {
  kw_server *server = check_open(L);
  if (kw_server_is_busy(server)) kw_bind_refuse_finalizer(L, "store");
  return kw_bind_push_deadline(L, kw_server_step(server, kw_bind_opt_now(L, 2)));
}

static int l_peer_feed(lua_State *L) {
  lua_peer *self = check_idle_peer(L);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  self->n_turn = 0;
  kw_accepted_face.feed(self->peer, bytes.data, bytes.len, kw_bind_opt_now(L, 3));
  return 0;
}

static void *peer_of(lua_State *L) {
  return check_peer(L)->peer;
}

static int l_peer_pending(lua_State *L) {
  check_peer(L)->is_dirty = false;
  lua_settop(L, 2);
  return kw_bind_push_pending(L, 2, peer_of, &kw_accepted_face);
}

static int l_peer_state(lua_State *L) {
  lua_peer *self = check_peer(L);
  unsigned bits = kw_accepted_face.state(self->peer);
  char why[WHY];
  snprintf(why, sizeof why, "%s", kw_peer_why(self->peer)); /* finalizers may close the peer */
  lua_pushboolean(L, bits & KW_PEER_WANTS_BYTES);
  lua_pushboolean(L, bits & KW_PEER_IS_DONE);
  lua_pushboolean(L, self->is_dirty);
  lua_pushstring(L, why);
  return 4;
}

static int l_peer_deadline(lua_State *L) {
  return kw_bind_push_deadline(L, check_peer(L)->deadline);
}

static int l_peer_step(lua_State *L) {
  lua_peer *self = check_idle_peer(L);
  int64_t now = kw_bind_opt_now(L, 2);
  self->deadline = INT64_MAX;
  self->n_turn = 0;
  kw_accepted_face.step(self->peer, now);
  return 0;
}

static int l_peer_close(lua_State *L) {
  lua_peer *self = luaL_checkudata(L, 1, PEER_NAME);
  if (self->peer != NULL) kw_accepted_face.close(self->peer, NULL);
  self->peer = NULL;
  return 0;
}

/* }====== */

static const luaL_Reg server_methods[] = {{"drain", l_drain},   {"connections", l_connections},
                                          {"held", l_held},     {"step", l_step},
                                          {"accept", l_accept}, {"close", l_close},
                                          {NULL, NULL}};
static const luaL_Reg server_meta[] = {{"__gc", l_gc}, {NULL, NULL}};
static const luaL_Reg peer_methods[] = {{"feed", l_peer_feed},
                                        {"pending", l_peer_pending},
                                        {"state", l_peer_state},
                                        {"deadline", l_peer_deadline},
                                        {"step", l_peer_step},
                                        {"close", l_peer_close},
                                        {NULL, NULL}};
static const luaL_Reg peer_meta[] = {{"__gc", l_peer_close}, {NULL, NULL}};

void kw_bind_push_serve(lua_State *L) {
  kw_add_class(L, KW_SERVER_NAME, server_meta, server_methods);
  luaL_getmetatable(L, KW_SERVER_NAME);
  lua_getfield(L, -1, "__index");
  kw_bind_add_calls(L);
  kw_bind_add_broadcasts(L);
  kw_bind_add_texts(L);
  kw_bind_add_notes(L);
  kw_bind_add_metrics(L);
  lua_pop(L, 2);
  kw_add_class(L, PEER_NAME, peer_meta, peer_methods);
  kw_publish(L, KW_ENGINE_KEY, &engine, sizeof engine);
  lua_pushcfunction(L, l_serve);
}
