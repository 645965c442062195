/* SPDX-License-Identifier: MIT
 *
 * probe: the table `probe` of keywatch.uv in builds for tests, with an engine that echoes. "This object" is the shared
 * object keywatch.uv.
 *   enter(version)    replaces core's engine in the registry by this one, with this version or the current one
 *   leave()           puts core's engine back
 *   server(options)   makes a server of this engine, whose peers send back what they get. For the options see l_server
 *   client(options)   makes a client of this engine, which keeps what it gets. For the options see l_client
 *   live()            returns how many blocks of this object's memory are allocated
 *   fail_at(n)        makes the n-th allocation of this object from now on fail; 0: none
 */
#include "base/bell.h"
#include "base/link.h"
#include "base/mem.h"
#include "face/engine.h"
#include "face/module.h"
#include "probe/mem.h"

#define SAVED_ENGINE "keywatch.uv.probe.engine"
#define SAVED_META "keywatch.uv.probe.meta"
#define SAVED_CLIENT_META "keywatch.uv.probe.client_meta"
#define OWN_META "keywatch.uv.probe.server"
#define OWN_CLIENT_META "keywatch.uv.probe.client"

/* The counters of a server, by name. */
#define COUNTS(X)                                                                                  \
  X(accepted)                                                                                      \
  X(closed)                                                                                        \
  X(feeds)                                                                                         \
  X(bytes)                                                                                         \
  X(ends)                                                                                          \
  X(gone)                                                                                          \
  X(writes)                                                                                        \
  X(steps)                                                                                         \
  X(server_steps)

struct kw_server {
  kw_link peers;
  size_t work;
  int64_t now; /* of the last call */

  char greeting[64];  /* what a peer sends first */
  size_t greetings;   /* how often the peer sends it */
  size_t limit;       /* a peer with this many bytes pending wants no more; 0: no limit */
  size_t done_after;  /* a peer is done after this many bytes; 0: never */
  size_t stop_after;  /* a peer wants no more after this many bytes; 0: no limit */
  size_t piece;       /* the size of the pieces that are pending */
  int64_t tick;       /* milliseconds to the step of a peer that was fed; 0: none */
  int64_t step_every; /* milliseconds; 0: it is not wanted */
  bool is_silent;     /* peers do not echo */
  bool has_work;      /* every feed is work for Lua */
  bool stays;         /* a peer is not done when the other side has closed its end */
  bool refuses;       /* `accept` returns NULL */

  char refusal[256];     /* argument of the last `refuse` */
  char common_name[256]; /* first text of the last `identify`; "" for NULL */

#define X(name) size_t name;
  COUNTS(X)
#undef X
};

/* A FIFO of bytes. */
typedef struct queue {
  char *bytes;
  size_t from;
  size_t to;
  size_t cap;
} queue;

struct kw_peer {
  kw_server *server;
  kw_peer_hooks hooks;
  kw_link link;
  queue out;
  size_t bytes;
  bool is_done;
};

struct kw_client {
  kw_peer_hooks hooks; /* all NULL before `dial` */
  queue in;
  queue out;
  char why[256]; /* argument of `close`; "" for NULL */

  size_t limit;    /* with this many bytes not taken by Lua the client wants no more; 0: no limit */
  int64_t timeout; /* milliseconds for `opened` to come, else the client is done; 0: none */
  bool stays;      /* the client is not done when the other side has closed its end */

  bool has_news;
  bool is_opened;
  bool has_ended;
  bool is_done;
  size_t closed; /* calls of `close` */
};

static bool queue_add(queue *self, const char *bytes, size_t len) {
  if (!kw_reserve(&self->bytes, &self->cap, self->to + len, 1)) return false;
  if (len > 0) memcpy(self->bytes + self->to, bytes, len);
  self->to += len;
  return true;
}

static size_t queue_len(const queue *self) {
  return self->to - self->from;
}

static size_t queue_pieces(const queue *self, size_t size, struct iovec *pieces, size_t max) {
  size_t n = 0;
  for (size_t at = self->from; at < self->to && n < max; n++) {
    size_t len = kw_min_size(size, self->to - at);
    pieces[n] = (struct iovec){.iov_base = self->bytes + at, .iov_len = len};
    at += len;
  }
  return n;
}

static void queue_remove(queue *self, size_t len) {
  self->from += len;
  assert(self->from <= self->to);
  if (self->from == self->to) self->from = self->to = 0;
}

/* {====== The engine: servers ====== */

static void say(kw_peer *peer, const char *bytes, size_t len) {
  if (!queue_add(&peer->out, bytes, len)) peer->is_done = true;
  peer->hooks.on_dirty(peer->hooks.ctx);
}

static kw_server *server_of(void *object) {
  return *(kw_server **)object;
}

static int64_t step_server(kw_server *server, int64_t now) {
  assert(now >= server->now);
  server->now = now;
  server->server_steps++;
  return server->step_every > 0 ? now + server->step_every : INT64_MAX;
}

static void set_bell(kw_server *server, const kw_bell *bell) {
  (void)server;
  kw_bell_release(bell);
}

static bool has_work(const kw_server *server) {
  return server->work > 0;
}

static bool is_busy(const kw_server *server) {
  (void)server;
  return false;
}

static kw_peer *accept_peer(kw_server *server, const kw_peer_hooks *hooks, int64_t now) {
  (void)now;
  kw_peer *peer = server->refuses ? NULL : kw_alloc_zeroed(sizeof *peer);
  if (peer == NULL) return NULL;
  server->accepted++;
  peer->server = server;
  peer->hooks = *hooks;
  kw_link_add(&server->peers, &peer->link);
  for (size_t i = 0; i < server->greetings; i++) {
    say(peer, server->greeting, strlen(server->greeting));
  }
  return peer;
}

static void feed(void *ctx, const void *bytes, size_t len, int64_t now) {
  kw_peer *peer = ctx;
  kw_server *server = peer->server;
  assert(now >= server->now);
  server->feeds++;
  server->bytes += len;
  peer->bytes += len;
  if (len == 0) {
    server->ends++;
    peer->is_done = !server->stays;
  }
  if (server->has_work) server->work++;
  if (server->tick > 0) peer->hooks.on_deadline(peer->hooks.ctx, now + server->tick);
  if (server->done_after > 0 && peer->bytes >= server->done_after) peer->is_done = true;
  say(peer, bytes, server->is_silent ? 0 : len);
}

static size_t pending(void *ctx, struct iovec *pieces, size_t max) {
  const kw_peer *peer = ctx;
  return queue_pieces(&peer->out, peer->server->piece, pieces, max);
}

static void wrote(void *ctx, size_t bytes) {
  kw_peer *peer = ctx;
  peer->server->writes++;
  queue_remove(&peer->out, bytes);
}

static unsigned state(const void *ctx) {
  const kw_peer *peer = ctx;
  size_t limit = peer->server->limit;
  size_t most = peer->server->stop_after;
  bool wants = !peer->is_done && (limit == 0 || queue_len(&peer->out) < limit) &&
               (most == 0 || peer->bytes < most);
  return (wants ? KW_PEER_WANTS_BYTES : 0) | (peer->is_done ? KW_PEER_IS_DONE : 0);
}

static void step(void *ctx, int64_t now) {
  kw_peer *peer = ctx;
  (void)now;
  peer->server->steps++;
  say(peer, "tick", 4);
}

static void close_peer(void *ctx, const char *why) {
  kw_peer *peer = ctx;
  (void)why;
  peer->server->closed++;
  kw_link_remove(&peer->link);
  kw_free(peer->out.bytes);
  kw_free(peer);
}

static void accept_failed(kw_server *server, const char *why) {
  (void)server;
  (void)why;
}

static void refuse_peer(kw_peer *peer, const char *why) {
  snprintf(peer->server->refusal, sizeof peer->server->refusal, "%s", why);
  peer->is_done = true;
}

static void identify_peer(kw_peer *peer, const char *identity, size_t len) {
  kw_server *server = peer->server;
  (void)len;
  snprintf(server->common_name, sizeof server->common_name, "%s", identity == NULL ? "" : identity);
}

static void gone_peer(kw_peer *peer, int64_t now) {
  (void)now;
  peer->server->gone++;
}

static void cut(void *ctx, int64_t now) {
  feed(ctx, NULL, 0, now);
}

static const kw_peer_face accepted = {.feed = feed,
                                      .pending = pending,
                                      .wrote = wrote,
                                      .state = state,
                                      .step = step,
                                      .close = close_peer,
                                      .cut = cut};

/* }====== */

/* {====== The engine: clients ====== */

static kw_client *client_of(void *object) {
  kw_client *client = *(kw_client **)object;
  return client == NULL || client->hooks.on_dirty != NULL ? NULL : client;
}

static void become_dirty(kw_client *client) {
  bool is_dialed = client->hooks.on_dirty != NULL && client->closed == 0;
  if (is_dialed) client->hooks.on_dirty(client->hooks.ctx);
}

static void client_dial(kw_client *client, const kw_peer_hooks *hooks, int64_t now) {
  client->hooks = *hooks;
  if (client->timeout > 0) hooks->on_deadline(hooks->ctx, now + client->timeout);
}

static void client_opened(kw_client *client, bool has_h2, int64_t now) {
  (void)has_h2, (void)now;
  assert(!client->is_opened);
  client->is_opened = client->has_news = true;
  client->hooks.on_deadline(client->hooks.ctx, INT64_MAX);
}

static bool client_has_news(const kw_client *client) {
  return client->has_news;
}

static void client_feed(void *ctx, const void *bytes, size_t len, int64_t now) {
  kw_client *client = ctx;
  (void)now;
  assert(client->is_opened && !client->has_ended && client->closed == 0);
  client->has_news = true;
  client->has_ended = len == 0;
  if (len == 0 && !client->stays) client->is_done = true;
  if (!queue_add(&client->in, bytes, len)) client->is_done = true;
  become_dirty(client);
}

static size_t client_pending(void *ctx, struct iovec *pieces, size_t max) {
  const kw_client *client = ctx;
  return queue_pieces(&client->out, 4096, pieces, max);
}

static void client_wrote(void *ctx, size_t bytes) {
  queue_remove(&((kw_client *)ctx)->out, bytes);
}

static unsigned client_state(const void *ctx) {
  const kw_client *client = ctx;
  bool wants = !client->is_done && (client->limit == 0 || queue_len(&client->in) < client->limit);
  return (wants ? KW_PEER_WANTS_BYTES : 0) | (client->is_done ? KW_PEER_IS_DONE : 0);
}

static void client_step(void *ctx, int64_t now) {
  kw_client *client = ctx;
  (void)now;
  client->is_done = true;
  become_dirty(client);
}

static void client_close(void *ctx, const char *why) {
  kw_client *client = ctx;
  client->closed++;
  client->has_news = true;
  strncpy(client->why, why == NULL ? "" : why, sizeof client->why - 1);
}

static void client_cut(void *ctx, int64_t now) {
  client_feed(ctx, NULL, 0, now);
}

static const kw_peer_face dialed = {.feed = client_feed,
                                    .pending = client_pending,
                                    .wrote = client_wrote,
                                    .state = client_state,
                                    .step = client_step,
                                    .close = client_close,
                                    .cut = client_cut};

/* }====== */

static const kw_engine echo = {.version = KW_ENGINE_VERSION,
                               .accepted = &accepted,
                               .dialed = &dialed,
                               .server_of = server_of,
                               .step_server = step_server,
                               .set_bell = set_bell,
                               .has_work = has_work,
                               .is_busy = is_busy,
                               .accept = accept_peer,
                               .accept_failed = accept_failed,
                               .refuse = refuse_peer,
                               .identify = identify_peer,
                               .gone = gone_peer,
                               .client_of = client_of,
                               .dial = client_dial,
                               .opened = client_opened,
                               .has_news = client_has_news};

/* {====== Its server, for Lua ====== */

static kw_server *check_server(lua_State *L) {
  kw_server *server = server_of(luaL_checkudata(L, 1, OWN_META));
  if (server == NULL) luaL_error(L, "the server is closed");
  return server;
}

static int64_t number_of(lua_State *L, const char *name, int64_t otherwise) {
  lua_getfield(L, 1, name);
  int64_t n = (int64_t)luaL_optinteger(L, -1, (lua_Integer)otherwise);
  lua_pop(L, 1);
  return n;
}

static bool is_set(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  bool b = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return b;
}

static int l_server(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  kw_server **self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = NULL;
  luaL_getmetatable(L, OWN_META);
  lua_setmetatable(L, -2);
  kw_server *server = *self = kw_alloc_zeroed(sizeof *server);
  if (server == NULL) return luaL_error(L, "not enough memory");
  kw_link_init(&server->peers);
  lua_getfield(L, 1, "greeting");
  strncpy(server->greeting, luaL_optstring(L, -1, ""), sizeof server->greeting - 1);
  lua_pop(L, 1);
  server->greetings = (size_t)number_of(L, "greetings", 1);
  server->limit = (size_t)number_of(L, "limit", 0);
  server->done_after = (size_t)number_of(L, "done_after", 0);
  server->stop_after = (size_t)number_of(L, "stop_after", 0);
  server->piece = (size_t)number_of(L, "piece", 4096);
  server->tick = number_of(L, "tick", 0);
  server->step_every = number_of(L, "step_every", 0);
  server->is_silent = is_set(L, "is_silent");
  server->has_work = is_set(L, "has_work");
  server->stays = is_set(L, "stays");
  server->refuses = is_set(L, "refuses");
  return 1;
}

/* server:say(bytes): sends to all peers, like a change that all of them watch. */
static int l_say(lua_State *L) {
  kw_server *server = check_server(L);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next) {
    say(KW_CONTAINER_OF(link, kw_peer, link), bytes, len);
  }
  return 0;
}

/* server:finish(): makes all peers done. */
static int l_finish(lua_State *L) {
  kw_server *server = check_server(L);
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next) {
    kw_peer *peer = KW_CONTAINER_OF(link, kw_peer, link);
    peer->is_done = true;
    say(peer, NULL, 0);
  }
  return 0;
}

/* server:take(): the amount of work, which becomes 0. */
static int l_take(lua_State *L) {
  kw_server *server = check_server(L);
  lua_pushinteger(L, (lua_Integer)server->work);
  server->work = 0;
  return 1;
}

/* server:heard(): why a peer was refused, and the name of its certificate. */
static int l_heard(lua_State *L) {
  const kw_server *server = check_server(L);
  lua_pushstring(L, server->refusal);
  lua_pushstring(L, server->common_name);
  return 2;
}

static int l_counts(lua_State *L) {
  const kw_server *server = check_server(L);
  lua_newtable(L);
#define X(name)                                                                                    \
  lua_pushinteger(L, (lua_Integer)server->name);                                                   \
  lua_setfield(L, -2, #name);
  COUNTS(X)
#undef X
  return 1;
}

/* The driver has closed all peers before. */
static int l_close(lua_State *L) {
  kw_server **self = luaL_checkudata(L, 1, OWN_META);
  assert(*self == NULL || kw_link_is_alone(&(*self)->peers));
  kw_free(*self);
  *self = NULL;
  return 0;
}

/* }====== */

/* {====== Its client, for Lua ====== */

static kw_client *check_client(lua_State *L) {
  kw_client *client = *(kw_client **)luaL_checkudata(L, 1, OWN_CLIENT_META);
  if (client == NULL) luaL_error(L, "the client is closed");
  return client;
}

static int l_client(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  kw_client **self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = NULL;
  luaL_getmetatable(L, OWN_CLIENT_META);
  lua_setmetatable(L, -2);
  kw_client *client = *self = kw_alloc_zeroed(sizeof *client);
  if (client == NULL) return luaL_error(L, "not enough memory");
  client->limit = (size_t)number_of(L, "limit", 0);
  client->timeout = number_of(L, "timeout", 0);
  client->stays = is_set(L, "stays");
  return 1;
}

/* client:say(bytes) */
static int l_client_say(lua_State *L) {
  kw_client *client = check_client(L);
  size_t len;
  const char *bytes = luaL_checklstring(L, 2, &len);
  if (!queue_add(&client->out, bytes, len)) return luaL_error(L, "not enough memory");
  become_dirty(client);
  return 0;
}

/* client:finish(): makes the client done. */
static int l_client_finish(lua_State *L) {
  kw_client *client = check_client(L);
  client->is_done = true;
  become_dirty(client);
  return 0;
}

/* client:take(): the bytes that came, and were not taken yet. After that there are no news. */
static int l_client_take(lua_State *L) {
  kw_client *client = check_client(L);
  size_t len = queue_len(&client->in);
  lua_pushlstring(L, len == 0 ? "" : client->in.bytes + client->in.from, len);
  queue_remove(&client->in, len);
  client->has_news = false;
  become_dirty(client);
  return 1;
}

/* client:state(): a table: is_opened, has_ended, closed (a count), why and remote. */
static int l_client_state(lua_State *L) {
  const kw_client *client = check_client(L);
  lua_newtable(L);
  lua_pushboolean(L, client->is_opened);
  lua_setfield(L, -2, "is_opened");
  lua_pushboolean(L, client->has_ended);
  lua_setfield(L, -2, "has_ended");
  lua_pushinteger(L, (lua_Integer)client->closed);
  lua_setfield(L, -2, "closed");
  lua_pushstring(L, client->why);
  lua_setfield(L, -2, "why");
  lua_pushstring(L, client->hooks.remote);
  lua_setfield(L, -2, "remote");
  return 1;
}

/* A client that was dialed must have been closed by the driver before. */
static int l_client_close(lua_State *L) {
  kw_client **self = luaL_checkudata(L, 1, OWN_CLIENT_META), *client = *self;
  *self = NULL;
  if (client == NULL) return 0;
  assert(client->hooks.on_dirty == NULL || client->closed == 1);
  kw_free(client->in.bytes);
  kw_free(client->out.bytes);
  kw_free(client);
  return 0;
}

/* }====== */

static void save(lua_State *L, const char *from, const char *to) {
  lua_getfield(L, LUA_REGISTRYINDEX, from);
  lua_setfield(L, LUA_REGISTRYINDEX, to);
}

/* enter(version) */
static int l_enter(lua_State *L) {
  lua_Integer version = luaL_optinteger(L, 1, KW_ENGINE_VERSION);
  save(L, KW_ENGINE_KEY, SAVED_ENGINE);
  save(L, KW_SERVER_NAME, SAVED_META);
  save(L, KW_CLIENT_NAME, SAVED_CLIENT_META);
  kw_engine *engine = lua_newuserdatauv(L, sizeof *engine, 0);
  *engine = echo;
  engine->version = (uint32_t)version;
  lua_setfield(L, LUA_REGISTRYINDEX, KW_ENGINE_KEY);
  save(L, OWN_META, KW_SERVER_NAME);
  save(L, OWN_CLIENT_META, KW_CLIENT_NAME);
  return 0;
}

static int l_leave(lua_State *L) {
  save(L, SAVED_ENGINE, KW_ENGINE_KEY);
  save(L, SAVED_META, KW_SERVER_NAME);
  save(L, SAVED_CLIENT_META, KW_CLIENT_NAME);
  return 0;
}

static int l_live(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_live());
  return 1;
}

static int l_fail_at(lua_State *L) {
  kw_mem_fail_at((size_t)luaL_checkinteger(L, 1));
  return 0;
}

static const luaL_Reg methods[] = {{"say", l_say},       {"finish", l_finish}, {"take", l_take},
                                   {"counts", l_counts}, {"heard", l_heard},   {"close", l_close},
                                   {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg client_methods[] = {{"say", l_client_say},     {"finish", l_client_finish},
                                          {"take", l_client_take},   {"state", l_client_state},
                                          {"close", l_client_close}, {NULL, NULL}};
static const luaL_Reg client_meta[] = {{"__gc", l_client_close}, {NULL, NULL}};
static const luaL_Reg functions[] = {
    {"enter", l_enter}, {"leave", l_leave},     {"server", l_server}, {"client", l_client},
    {"live", l_live},   {"fail_at", l_fail_at}, {NULL, NULL}};

static void add_probe(lua_State *L) {
  kw_add_class(L, OWN_META, meta, methods);
  kw_add_class(L, OWN_CLIENT_META, client_meta, client_methods);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  lua_setfield(L, -2, "probe");
}

__attribute__((constructor)) static void register_probe(void) {
  kw_module_probe = add_probe;
}
