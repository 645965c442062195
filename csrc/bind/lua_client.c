/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>

#include "bind/lua_client.h"

#include "bind/lua_fetch.h"
#include "bind/lua_options.h"
#include "bind/lua_peer.h"
#include "bind/lua_value.h"
#include "codec/wire.h"
#include "face/module.h"
#include "rpc/feed.h"
#include "rpc/watch_call.h"

#define MAX_UNTAKEN (1 << 20)           /* received bytes of one call that Lua has not taken */
#define MAX_SECONDS INT64_C(1000000000) /* longer times count as unlimited */

typedef struct lua_client {
  kw_client *client; /* NULL: closed */
  bool was_dialed;   /* a driver uses the client: it is freed with the object */
} lua_client;

/* Objects that become garbage together are finalized in any order: a finalizer may meet a client that is closed. */
kw_client *kw_bind_to_client(lua_State *L, int arg) {
  return ((lua_client *)luaL_checkudata(L, arg, KW_CLIENT_NAME))->client;
}

static kw_client *to_client(lua_State *L) {
  return kw_bind_to_client(L, 1);
}

/* Returns a client of gRPC or of HTTP. */
static kw_client *check_either(lua_State *L) {
  kw_client *client = to_client(L);
  if (client == NULL) luaL_error(L, "the connection is closed");
  return client;
}

kw_client *kw_bind_check_client(lua_State *L, int arg) {
  kw_client *client = kw_bind_to_client(L, arg);
  if (client == NULL) luaL_error(L, "the connection is closed");
  if (kw_client_fetches(client) != NULL) luaL_error(L, "this is an HTTP client");
  return client;
}

static kw_client *check_client(lua_State *L) {
  return kw_bind_check_client(L, 1);
}

static uint64_t check_call(lua_State *L) {
  return (uint64_t)kw_bind_check_int(L, 2, 1);
}

/* {====== The engine ====== */

kw_client *kw_bind_client_of(void *object) {
  lua_client *self = object;
  if (self->was_dialed) return NULL;
  self->was_dialed = self->client != NULL;
  return self->client;
}

/* }====== */

typedef struct client_fields {
  kw_seconds handshake_timeout;
  kw_seconds keepalive;
  kw_seconds keepalive_timeout;
  int64_t max_message;
  int64_t seed; /* negative: not given */
  bool is_tls;
} client_fields;

static const kw_option client_options[] = {
    {"handshake_timeout", KW_OPTION_SECONDS, offsetof(client_fields, handshake_timeout), NULL},
    {"keepalive", KW_OPTION_SECONDS, offsetof(client_fields, keepalive), NULL},
    {"keepalive_timeout", KW_OPTION_SECONDS, offsetof(client_fields, keepalive_timeout), NULL},
    {"max_message", KW_OPTION_COUNT, offsetof(client_fields, max_message), NULL},
    {"seed", KW_OPTION_COUNT, offsetof(client_fields, seed), NULL},
    {"is_tls", KW_OPTION_BOOL, offsetof(client_fields, is_tls), NULL},
    KW_END_OF_OPTIONS};

/* Sets a time in milliseconds, rounded up: only 0 becomes 0, which may mean "never". Raises if the time is negative. */
static void set_ms(lua_State *L, int64_t *ms, const char *name, const kw_seconds *seconds) {
  if (!seconds->is_given) return;
  if (seconds->value < 0) luaL_error(L, "client: option '%s' must not be negative", name);
  *ms = seconds->value < MAX_SECONDS ? (int64_t)ceil(seconds->value * 1000) : MAX_SECONDS * 1000;
}

static kw_session_options read_client_options(lua_State *L, int arg, uint64_t *hash_seed) {
  client_fields fields = {.max_message = INT32_MAX, .seed = -1};
  kw_session_options options = kw_session_defaults();
  options.keepalive_ms = 0;
  kw_bind_read_options(L, arg, "client", client_options, &fields);
  set_ms(L, &options.handshake_ms, "handshake_timeout", &fields.handshake_timeout);
  set_ms(L, &options.keepalive_ms, "keepalive", &fields.keepalive);
  set_ms(L, &options.keepalive_wait_ms, "keepalive_timeout", &fields.keepalive_timeout);
  options.max_message = (size_t)fields.max_message;
  options.max_partial = INT32_MAX;
  options.is_tls = fields.is_tls;
  *hash_seed = kw_bind_seed(L, fields.seed);
  return options;
}

static int l_client(lua_State *L) {
  kw_slice authority = kw_bind_check_bytes(L, 1);
  uint64_t hash_seed;
  kw_session_options options = read_client_options(L, 2, &hash_seed);
  int64_t now = kw_bind_opt_now(L, 3);
  lua_client *self = kw_new_object(L, KW_CLIENT_NAME, sizeof *self, 0);
  self->client = kw_client_new(&options, authority, MAX_UNTAKEN, hash_seed, now);
  return self->client == NULL ? 0 : 1;
}

typedef struct http_fields {
  bool is_tls;
  bool has_h2;
  kw_seconds connect_timeout;
  kw_seconds idle_timeout;
} http_fields;

static const kw_option http_options[] = {
    {"is_tls", KW_OPTION_BOOL, offsetof(http_fields, is_tls), NULL},
    {"has_h2", KW_OPTION_BOOL, offsetof(http_fields, has_h2), NULL},
    {"connect_timeout", KW_OPTION_SECONDS, offsetof(http_fields, connect_timeout), NULL},
    {"idle_timeout", KW_OPTION_SECONDS, offsetof(http_fields, idle_timeout), NULL},
    KW_END_OF_OPTIONS};

/* Lua measures the time of heads and bodies, and limits what it reads. */
static int l_http_client(lua_State *L) {
  http_fields fields = {false, false, {false, 0}, {false, 0}};
  kw_http_options options = kw_http_defaults();
  int64_t connect_ms = 0, now = kw_bind_opt_now(L, 2);
  kw_bind_read_options(L, 1, "http_client", http_options, &fields);
  set_ms(L, &connect_ms, "connect_timeout", &fields.connect_timeout);
  set_ms(L, &options.idle_ms, "idle_timeout", &fields.idle_timeout);
  options.head_ms = options.body_ms = options.stall_ms = 0;
  options.max_body = UINT64_MAX;
  lua_client *self = kw_new_object(L, KW_CLIENT_NAME, sizeof *self, 0);
  kw_http_kind kind = {fields.is_tls, fields.has_h2};
  self->client = kw_client_new_http(&options, connect_ms, kind, now);
  return self->client == NULL ? 0 : 1;
}

static size_t read_metadata(lua_State *L, int at, kw_http_field *metadata) {
  size_t n = 0;
  if (lua_isnoneornil(L, at)) return 0;
  luaL_checktype(L, at, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    if (n == KW_MAX_METADATA) luaL_error(L, "more than %d fields of metadata", KW_MAX_METADATA);
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      luaL_error(L, "metadata: names and values are strings");
    metadata[n++] = (kw_http_field){kw_bind_bytes(L, -2), kw_bind_bytes(L, -1)};
  }
  return n;
}

static int push_call(lua_State *L, uint64_t call) {
  if (call == 0) return 0;
  kw_bind_push_int(L, (int64_t)call);
  return 1;
}

static int l_call(lua_State *L) {
  kw_client *client = check_client(L);
  kw_http_field metadata[KW_MAX_METADATA];
  kw_slice path = kw_bind_check_bytes(L, 2);
  bool is_unary = lua_toboolean(L, 4);
  return push_call(
      L, kw_client_call(client, path, metadata, read_metadata(L, 3, metadata), is_unary, NULL));
}

static int l_send(lua_State *L) {
  kw_client *client = check_client(L);
  uint64_t call = check_call(L);
  kw_slice message = kw_bind_check_bytes(L, 3);
  bool is_live = kw_client_is_live(client, call);
  if (!kw_client_send(client, call, message)) {
    kw_client_fail(client, call, KW_GRPC_UNAVAILABLE, "keywatch: out of memory");
    is_live = false;
  }
  lua_pushboolean(L, is_live);
  return 1;
}

static int l_half_close(lua_State *L) {
  kw_client *client = check_client(L);
  kw_client_half_close(client, check_call(L));
  return 0;
}

static int l_cancel(lua_State *L) {
  kw_client *client = to_client(L);
  if (client != NULL) kw_client_cancel(client, check_call(L));
  return 0;
}

static int l_has_room(lua_State *L) {
  kw_client *client = check_client(L);
  uint64_t call = check_call(L);
  lua_pushboolean(L, kw_client_has_room(client, call, (size_t)kw_bind_check_int(L, 3, 0)));
  return 1;
}

/* Pushes field 1 of the held message, which is a message itself. Pushes true if the held message has other fields. */
static int push_wrapped(lua_State *L, kw_blob **holder) {
  kw_wire_reader reader = kw_wire_read(kw_blob_slice(*holder));
  kw_wire_field field, other;
  bool has_field =
      kw_wire_next(&reader, &field) && field.number == 1 && field.type == KW_WIRE_BYTES;
  if (has_field && !kw_wire_next(&reader, &other) && !reader.failed) {
    kw_bind_push_slice(L, field.bytes);
  } else {
    lua_pushboolean(L, true);
  }
  kw_blob_release(*holder);
  *holder = NULL;
  return 1;
}

/* Pushes a message; or false, the status, its text, and whether the server has refused the call without processing it;
 * or nothing. The holder is empty, and takes over the bytes. */
static int push_return(lua_State *L, kw_blob **holder, kw_return what, bool is_wrapped) {
  if (what.kind == KW_RETURN_NOTHING) return 0;
  *holder = what.bytes;
  if (what.kind == KW_RETURN_MESSAGE && is_wrapped) return push_wrapped(L, holder);
  if (what.kind == KW_RETURN_MESSAGE) {
    kw_bind_push_held(L, holder);
    return 1;
  }
  lua_pushboolean(L, false);
  lua_pushinteger(L, what.status);
  kw_bind_push_held(L, holder);
  lua_pushboolean(L, what.is_refused);
  return 4;
}

static int l_receive(lua_State *L) {
  lua_settop(L, 3);
  kw_blob **holder = kw_bind_new_holder(L); /* first: it may let finalizers run */
  kw_client *client = check_client(L);
  return push_return(L, holder, kw_client_take(client, check_call(L)), lua_toboolean(L, 3));
}

static int l_next(lua_State *L) {
  kw_client *client = to_client(L);
  return client == NULL ? 0 : push_call(L, kw_client_next_ready(client));
}

/* {====== Watching ====== */

static kw_watch_call *check_watch_call(lua_State *L) {
  kw_client *client = check_client(L);
  return kw_watch_call_find(client, check_call(L));
}

static int l_watch(lua_State *L) {
  kw_client *client = check_client(L);
  kw_http_field metadata[KW_MAX_METADATA];
  size_t max_partial = (size_t)kw_bind_check_int(L, 3, 1);
  return push_call(
      L, kw_watch_call_open(client, metadata, read_metadata(L, 2, metadata), max_partial));
}

static int l_ask(lua_State *L) {
  kw_watch_call *call = check_watch_call(L);
  if (call != NULL) kw_watch_call_ask(call);
  return 0;
}

static int l_trust(lua_State *L) {
  kw_watch_call *call = check_watch_call(L);
  if (call != NULL) kw_watch_call_trust(call);
  return 0;
}

static int l_inspect(lua_State *L) {
  const kw_watch_call *call = check_watch_call(L);
  if (call == NULL) return 0;
  kw_watch_call_info info = kw_watch_call_inspect(call);
  kw_bind_push_int(L, (int64_t)info.n_answers);
  kw_bind_push_int(L, (int64_t)info.watches);
  lua_pushboolean(L, info.is_paused);
  return 3;
}

static int l_next_watch(lua_State *L) {
  kw_client *client = to_client(L);
  kw_link *ready = client == NULL ? NULL : kw_client_ready_watches(client);
  if (ready == NULL || kw_link_is_alone(ready)) return 0;
  kw_subscription *sub = KW_CONTAINER_OF(ready->next, kw_subscription, ready);
  bool has_changed = sub->has_changed || (sub->feed != NULL && kw_feed_has_more(sub));
  kw_link_remove(&sub->ready);
  sub->has_changed = false;
  kw_bind_push_int(L, (int64_t)sub->tag);
  lua_pushboolean(L, has_changed);
  return 2;
}

static int l_has_news(lua_State *L) {
  const kw_client *client = to_client(L);
  lua_pushboolean(L, client == NULL || kw_client_has_news(client));
  return 1;
}

static int l_is_quiet(lua_State *L) {
  const kw_client *client = to_client(L);
  lua_pushboolean(L, client != NULL && kw_client_is_quiet(client));
  return 1;
}

/* }====== */

/* {====== A driver in Lua ====== */

static int l_dial(lua_State *L) {
  lua_client *self = luaL_checkudata(L, 1, KW_CLIENT_NAME);
  int64_t now = kw_bind_opt_now(L, 2);
  kw_client *client = kw_bind_client_of(self);
  if (client == NULL) return luaL_error(L, "the client is closed, or was dialed before");
  kw_client_dial(client, NULL, now);
  return 0;
}

static int l_opened(lua_State *L) {
  kw_client *client = check_either(L);
  bool has_h2 = lua_toboolean(L, 3);
  kw_client_opened(client, has_h2, kw_bind_opt_now(L, 2));
  return 0;
}

static int l_closed(lua_State *L) {
  kw_client *client = to_client(L);
  const char *why = luaL_optstring(L, 2, NULL);
  if (client != NULL) kw_dialed_face.close(client, why);
  return 0;
}

/* }====== */

static int l_feed(lua_State *L) {
  kw_client *client = check_either(L);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  kw_dialed_face.feed(client, bytes.data, bytes.len, kw_bind_opt_now(L, 3));
  return 0;
}

static int l_cut(lua_State *L) {
  kw_dialed_face.cut(check_either(L), kw_bind_opt_now(L, 2));
  return 0;
}

static void *peer_of(lua_State *L) {
  return check_either(L);
}

static int l_pending(lua_State *L) {
  lua_settop(L, 2);
  return kw_bind_push_pending(L, 2, peer_of, &kw_dialed_face);
}

static int l_state(lua_State *L) {
  unsigned now = kw_dialed_face.state(check_either(L));
  lua_pushboolean(L, (now & KW_PEER_WANTS_BYTES) != 0);
  lua_pushboolean(L, (now & KW_PEER_IS_DONE) != 0);
  return 2;
}

static int l_health(lua_State *L) {
  kw_client *client = to_client(L);
  if (client == NULL) {
    lua_pushboolean(L, false);
    lua_pushboolean(L, true);
    return 2;
  }
  kw_client_health health = kw_client_read_health(client);
  const char *reason = kw_client_why(client);
  char why[KW_CLIENT_WHY]; /* a copy: finalizers may close the client */
  if (reason != NULL) snprintf(why, sizeof why, "%s", reason);
  lua_pushboolean(L, health.is_ready);
  lua_pushboolean(L, health.is_over);
  lua_pushstring(L, reason == NULL ? NULL : why);
  lua_pushboolean(L, health.got_enhance_your_calm);
  lua_pushnumber(L, (lua_Number)health.data_bytes);
  return 5;
}

static int l_deadline(lua_State *L) {
  return kw_bind_push_deadline(L, kw_client_deadline(check_either(L)));
}

static int l_step(lua_State *L) {
  kw_client *client = check_either(L);
  kw_dialed_face.step(client, kw_bind_opt_now(L, 2));
  return 0;
}

static void free_client(lua_client *self) {
  if (self->client != NULL) kw_client_free(self->client);
  self->client = NULL;
}

/* A client that a driver uses is freed with the object, so that the last messages can still be received. */
static int l_close(lua_State *L) {
  lua_client *self = luaL_checkudata(L, 1, KW_CLIENT_NAME);
  if (self->was_dialed && self->client != NULL) {
    kw_client_end(self->client);
  } else {
    free_client(self);
  }
  return 0;
}

static int l_gc(lua_State *L) {
  free_client(luaL_checkudata(L, 1, KW_CLIENT_NAME));
  return 0;
}

static const luaL_Reg methods[] = {{"call", l_call},
                                   {"send", l_send},
                                   {"half_close", l_half_close},
                                   {"has_room", l_has_room},
                                   {"cancel", l_cancel},
                                   {"receive", l_receive},
                                   {"next", l_next},
                                   {"watch", l_watch},
                                   {"ask", l_ask},
                                   {"trust", l_trust},
                                   {"inspect", l_inspect},
                                   {"next_watch", l_next_watch},
                                   {"is_quiet", l_is_quiet},
                                   {"has_news", l_has_news},
                                   {"dial", l_dial},
                                   {"opened", l_opened},
                                   {"closed", l_closed},
                                   {"feed", l_feed},
                                   {"cut", l_cut},
                                   {"pending", l_pending},
                                   {"state", l_state},
                                   {"health", l_health},
                                   {"deadline", l_deadline},
                                   {"step", l_step},
                                   {"close", l_close},
                                   {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_gc}, {NULL, NULL}};

void kw_bind_push_client(lua_State *L) {
  kw_add_class(L, KW_CLIENT_NAME, meta, methods);
  luaL_getmetatable(L, KW_CLIENT_NAME);
  lua_getfield(L, -1, "__index");
  kw_bind_add_fetches(L);
  lua_pop(L, 2);
  lua_pushcfunction(L, l_client);
}

void kw_bind_push_http_client(lua_State *L) {
  lua_pushcfunction(L, l_http_client);
}
