/* SPDX-License-Identifier: MIT
 *
 * uv: the module keywatch.uv.
 *
 * A loop's uservalue holds the server and client objects whose pointer the loop has, each under a handle: a userdata
 * that is younger than the object. When the state ends, finalizers run from the youngest on: the handle's closes the
 * listeners and the connections of the object before the object's own runs.
 *
 * Whatever asks Lua for memory may let finalizers run, and these may close the loop: what a function needs of Lua it
 * makes first, and only then it looks at the loop.
 */
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "base/common.h"
#include "face/engine.h"
#include "face/module.h"
#include "uv/address.h"
#include "uv/loop_client.h"
#include "uv/loop_server.h"
#include "uv/listener.h"
#include "uv/lookup.h"
#include "uv/loop.h"
#include "uv/lua_thread.h"
#include "uv/object.h"

#ifdef KW_PROBE
#include "uv/probe_engine.h"
#endif

#define LISTENER_NAME "keywatch.uv.listener"
#define LOOKUP_NAME "keywatch.uv.lookup"
#define HANDLE_NAME "keywatch.uv.handle"

int KW_EXPORT luaopen_keywatch_uv(lua_State *L);

static kw_loop **check_loop(lua_State *L) {
  return luaL_checkudata(L, 1, KW_LOOP_NAME);
}

static kw_loop *check_open(lua_State *L) {
  kw_loop *loop = *check_loop(L);
  if (loop == NULL) luaL_error(L, "the loop is closed");
  int rc = kw_loop_enter(loop);
  if (rc < 0) luaL_error(L, "keywatch: the loop is lost in this process: %s", uv_strerror(rc));
  return loop;
}

static int push_failure(lua_State *L, int rc) {
  lua_pushnil(L);
  lua_pushstring(L, uv_strerror(rc));
  lua_pushstring(L, uv_err_name(rc));
  return 3;
}

/* {====== Handles ====== */

typedef struct handle {
  kw_loop_server *server; /* or NULL */
  kw_loop_client *client; /* or NULL */
} handle;

/* For the object at 2, in the loop at 1. */
static handle *add_handle(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  handle *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (handle){NULL, NULL};
  luaL_getmetatable(L, HANDLE_NAME);
  lua_setmetatable(L, -2);
  lua_pushvalue(L, 2);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  return self;
}

static void close_handle(handle *self) {
  const char *why = uv_strerror(UV_ECANCELED);
  if (self->server != NULL) kw_loop_server_close(self->server, why);
  if (self->client != NULL) kw_loop_client_close(self->client, why);
}

static int l_handle_gc(lua_State *L) {
  handle *self = luaL_checkudata(L, 1, HANDLE_NAME);
  if (self->server != NULL) kw_loop_enter(self->server->loop);
  if (self->client != NULL) kw_loop_enter(self->client->loop);
  close_handle(self);
  return 0;
}

static bool is_idle(const handle *self) {
  if (self->server != NULL) return kw_loop_server_is_idle(self->server);
  return self->client == NULL;
}

/* Lets go of the servers that have neither listeners nor connections any more, and of the clients that have none; of
 * all if the loop, at 1, is closed. */
static void release_idle(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    handle *self = lua_touserdata(L, -2);
    lua_pop(L, 1);
    if (!is_idle(self)) continue;
    close_handle(self);
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_pop(L, 1);
}

/* The handle of the object at 2, or NULL. The object may be closed. */
static handle *find_handle(lua_State *L) {
  lua_settop(L, 2);
  lua_getiuservalue(L, 1, 1);
  lua_pushnil(L);
  while (lua_next(L, 3) != 0) {
    if (lua_rawequal(L, -1, 2)) return lua_touserdata(L, -2);
    lua_pop(L, 1);
  }
  return NULL;
}

/* loop:hosts(object): whether it has listeners or connections. */
static int l_hosts(lua_State *L) {
  check_open(L);
  const handle *self = find_handle(L);
  lua_pushboolean(L, self != NULL && (self->server != NULL || self->client != NULL));
  return 1;
}

/* loop:release(object): closes its listeners and connections at once. */
static int l_release(lua_State *L) {
  check_open(L);
  handle *self = find_handle(L);
  if (self != NULL) close_handle(self);
  release_idle(L);
  return 0;
}

/* }====== */

/* {====== Servers ====== */

static const kw_engine *check_engine(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, KW_ENGINE_KEY);
  const kw_engine *engine = lua_touserdata(L, -1);
  if (engine == NULL) luaL_error(L, "keywatch.core is not loaded: require it first");
  if (engine->version != KW_ENGINE_VERSION) {
    luaL_error(
        L, "keywatch.core has version %d of the engine, and keywatch.uv needs %d: build both anew",
        (int)engine->version, KW_ENGINE_VERSION);
  }
  lua_pop(L, 1); /* it stays in the registry */
  return engine;
}

/* The server object at 2, as the loop at 1 hosts it; with the handle that it gets if it is new there. */
static kw_loop_server *check_server(lua_State *L, kw_loop *loop, handle *self) {
  const kw_engine *engine = check_engine(L);
  kw_server *server = engine->server_of(luaL_checkudata(L, 2, KW_SERVER_NAME));
  if (server == NULL) luaL_error(L, "the server is closed");
  kw_loop_server *loop_server = kw_loop_server_find(loop, server);
  if (loop_server != NULL) return loop_server;
  if (kw_loop_server_open(&self->server, loop, engine, server) < 0)
    luaL_error(L, "not enough memory");
  return self->server;
}

/* }====== */

/* {====== Addresses ====== */

static void push_address(lua_State *L, const kw_address *address) {
  char host[KW_ADDRESS_TEXT] = "";
  lua_newtable(L);
  if (kw_address_is_path(address)) {
    lua_pushstring(L, address->path.sun_path);
    lua_setfield(L, -2, "path");
    return;
  }
  kw_address_host(address, host);
  lua_pushstring(L, host);
  lua_setfield(L, -2, "host");
  lua_pushinteger(L, kw_address_port(address));
  lua_setfield(L, -2, "port");
}

static int read_path(lua_State *L, int i, kw_address *address) {
  size_t len;
  lua_getfield(L, i, "path");
  const char *path = luaL_checklstring(L, -1, &len);
  return kw_address_init_path(address, path, len);
}

static int read_ip(lua_State *L, int i, kw_address *address) {
  lua_getfield(L, i, "host");
  lua_getfield(L, i, "port");
  const char *host = luaL_checkstring(L, -2);
  lua_Integer port = luaL_checkinteger(L, -1);
  luaL_argcheck(L, port >= 0 && port <= UINT16_MAX, i, "a port is 0 to 65535");
  return kw_address_init_ip(address, host, (uint16_t)port);
}

/* { path = } or { host =, port = }, the host in digits. */
static int read_address(lua_State *L, int i, kw_address *address) {
  luaL_checktype(L, i, LUA_TTABLE);
  lua_getfield(L, i, "path");
  bool is_path = !lua_isnil(L, -1);
  int rc = is_path ? read_path(L, i, address) : read_ip(L, i, address);
  lua_settop(L, i);
  return rc;
}

static void push_hosts(lua_State *L, const kw_address *addresses, int n) {
  char host[KW_ADDRESS_TEXT] = "";
  lua_newtable(L);
  for (int i = 0; i < n; i++) {
    kw_address_host(&addresses[i], host);
    lua_pushstring(L, host);
    lua_rawseti(L, -2, i + 1);
  }
}

/* loop:resolve(name): a list of hosts in digits; or nil, text and name of the error. */
static int l_resolve(lua_State *L) {
  kw_address addresses[KW_LOOKUP_ADDRESSES];
  check_open(L);
  const char *name = luaL_checkstring(L, 2);
  int n = kw_address_resolve(&check_open(L)->uv, name, addresses, KW_LOOKUP_ADDRESSES);
  if (n < 0) return push_failure(L, n);
  push_hosts(L, addresses, n);
  return 1;
}

/* loop:lookup(name): a lookup, whose end ends a turn; or nil, text and name of the error. */
static int l_lookup(lua_State *L) {
  check_open(L);
  const char *name = luaL_checkstring(L, 2);
  kw_object_push(L, LOOKUP_NAME, 0);
  int rc = kw_lookup_open(lua_touserdata(L, -1), check_open(L), name);
  return rc == 0 ? 1 : push_failure(L, rc);
}

static kw_lookup **check_lookup(lua_State *L) {
  return luaL_checkudata(L, 1, LOOKUP_NAME);
}

/* lookup:result(): nil while it is under way; a list of hosts in digits; or false, text and name of the error. */
static int l_result(lua_State *L) {
  kw_lookup *lookup = *check_lookup(L);
  kw_address copies[KW_LOOKUP_ADDRESSES];
  const kw_address *addresses;
  int n;
  if (lookup == NULL) return luaL_error(L, "the lookup is closed");
  if (!kw_lookup_has_ended(lookup, &addresses, &n)) {
    lua_pushnil(L);
    return 1;
  }
  if (n >= 0) {
    memcpy(copies, addresses, (size_t)n * sizeof *addresses); /* finalizers may close the lookup */
    push_hosts(L, copies, n);
    return 1;
  }
  lua_pushboolean(L, 0);
  push_failure(L, n);
  lua_remove(L, -3);
  return 3;
}

static int l_lookup_close(lua_State *L) {
  kw_lookup **self = check_lookup(L);
  if (*self != NULL) kw_lookup_close(*self);
  *self = NULL;
  return 0;
}

/* }====== */

/* {====== Listeners ====== */

static kw_listener **check_listener(lua_State *L) {
  return luaL_checkudata(L, 1, LISTENER_NAME);
}

/* loop:listen(server, address): a listener; or nil, text and name of the error. */
static int l_listen(lua_State *L) {
  kw_address address;
  check_open(L);
  lua_settop(L, 3);
  int rc = read_address(L, 3, &address);
  if (rc < 0) return push_failure(L, rc);
  kw_object_push(L, LISTENER_NAME, 0);
  handle *self = add_handle(L);
  kw_loop_server *loop_server = check_server(L, check_open(L), self);
  rc = kw_listener_open(lua_touserdata(L, -1), loop_server, &address);
  release_idle(L); /* the handle, if the server has one already; or the server */
  return rc == 0 ? 1 : push_failure(L, rc);
}

/* listener:address(): where it listens, with the port that the kernel chose. */
static int l_address(lua_State *L) {
  kw_listener **self = check_listener(L);
  kw_address address;
  if (*self != NULL) kw_loop_enter((*self)->loop_server->loop);
  if (*self == NULL) return luaL_error(L, "the listener is closed");
  int rc = kw_address_init_socket(&address, (*self)->fd);
  if (rc < 0) return push_failure(L, rc);
  push_address(L, &address);
  return 1;
}

static int l_listener_close(lua_State *L) {
  kw_listener **self = check_listener(L);
  if (*self != NULL) kw_loop_enter((*self)->loop_server->loop);
  if (*self != NULL) kw_listener_close(*self);
  return 0;
}

/* }====== */

/* {====== Clients ====== */

/* loop:dial(client, address): true; or nil, text and name of the error. */
static int l_dial(lua_State *L) {
  kw_address address;
  check_open(L);
  lua_settop(L, 3);
  void *object = luaL_checkudata(L, 2, KW_CLIENT_NAME);
  int rc = read_address(L, 3, &address);
  if (rc < 0) return push_failure(L, rc);
  handle *self = add_handle(L);
  kw_loop *loop = check_open(L);
  const kw_engine *engine = check_engine(L);
  kw_client *client = engine->client_of(object);
  if (client == NULL) return luaL_error(L, "the client is closed, or was dialed before");
  rc = kw_loop_client_open(&self->client, loop, engine, client, &address);
  if (rc < 0) {
    release_idle(L);
    return push_failure(L, rc);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* }====== */

/* {====== Signals ====== */

/* loop:signals(names): from now on these are caught, and no others. */
static int l_signals(lua_State *L) {
  bool wanted[KW_SIGNALS] = {false};
  check_open(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  for (int i = 1; i <= (int)lua_rawlen(L, 2); i++) {
    lua_rawgeti(L, 2, i);
    int at = kw_loop_find_signal(luaL_checkstring(L, -1));
    if (at < 0) return luaL_error(L, "no signal to wait for: %s", lua_tostring(L, -1));
    wanted[at] = true;
    lua_pop(L, 1);
  }
  int rc = kw_loop_watch_signals(check_open(L), wanted);
  if (rc < 0) return push_failure(L, rc);
  lua_pushboolean(L, 1);
  return 1;
}

/* loop:next_signal(): the name of one that came, or nil. */
static int l_next_signal(lua_State *L) {
  lua_pushstring(L, kw_loop_next_signal(check_open(L)));
  return 1;
}

/* }====== */

/* {====== The loop ====== */

static int l_open(lua_State *L) {
  kw_object_push(L, KW_LOOP_NAME, 1);
  lua_newtable(L);
  lua_setiuservalue(L, -2, 1);
  int rc = kw_loop_open(lua_touserdata(L, -1));
  if (rc == 0) return 1;
  lua_pushnil(L);
  lua_pushfstring(L, "keywatch: no loop: %s", uv_strerror(rc));
  return 2;
}

/* loop:turn(seconds, bell_ends_turn): rounded up, so that what is waited for is due afterwards; without an end if
 * not given. With bell_ends_turn the bell ends it, too. A finalizer in the middle of a store's call may not wait,
 * and its look finds nothing. */
static int l_turn(lua_State *L) {
  kw_loop *loop = check_open(L);
  int64_t ms = -1;
  if (!lua_isnoneornil(L, 2)) {
    double seconds = luaL_checknumber(L, 2);
    ms = seconds < 1e12 ? (int64_t)ceil(seconds * 1000) : INT64_MAX / 2;
    if (ms < 0) ms = 0;
  }
  bool is_busy = kw_loop_is_busy(loop);
  if (is_busy && ms == 0) return 0;
  if (is_busy) luaL_error(L, "a store is in the middle of a call, and a finalizer has to wait");
  kw_loop_turn(loop, ms, lua_toboolean(L, 3));
  release_idle(L);
  return 0;
}

/* loop:bell(): what makes it turn, for those who have threads. */
static int l_bell(lua_State *L) {
  kw_bell *bell = lua_newuserdatauv(L, sizeof *bell, 0);
  *bell = (kw_bell){0};
  luaL_getmetatable(L, KW_BELL_NAME);
  lua_setmetatable(L, -2);
  *bell = kw_loop_bell(check_open(L));
  return 1;
}

static int l_bell_gc(lua_State *L) {
  kw_bell *bell = luaL_checkudata(L, 1, KW_BELL_NAME);
  kw_bell_release(bell);
  bell->ring = NULL;
  return 0;
}

/* loop:is_awaiting(): whether anything but time could end a turn. */
static int l_is_awaiting(lua_State *L) {
  lua_pushboolean(L, kw_loop_is_awaiting(check_open(L)));
  return 1;
}

/* loop:connections(): how many are not closed. */
static int l_connections(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_open(L)->connections);
  return 1;
}

static int l_close(lua_State *L) {
  kw_loop **self = check_loop(L);
  if (*self == NULL) return 0;
  kw_loop_enter(*self);
  kw_loop_close(*self);
  *self = NULL;
  release_idle(L);
  return 0;
}

/* }====== */

static int l_now(lua_State *L) {
  lua_pushnumber(L, (lua_Number)uv_hrtime() / 1e9);
  return 1;
}

/* pid(): which process this is. */
static int l_pid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)getpid());
  return 1;
}

/* time(): seconds since 1970. */
static int l_time(lua_State *L) {
  uv_timeval64_t time;
  uv_gettimeofday(&time);
  lua_pushnumber(L, (lua_Number)time.tv_sec + (lua_Number)time.tv_usec / 1e6);
  return 1;
}

static const luaL_Reg loop_methods[] = {{"turn", l_turn},
                                        {"listen", l_listen},
                                        {"dial", l_dial},
                                        {"hosts", l_hosts},
                                        {"release", l_release},
                                        {"resolve", l_resolve},
                                        {"lookup", l_lookup},
                                        {"signals", l_signals},
                                        {"next_signal", l_next_signal},
                                        {"is_awaiting", l_is_awaiting},
                                        {"connections", l_connections},
                                        {"bell", l_bell},
                                        {"close", l_close},
                                        {NULL, NULL}};
static const luaL_Reg loop_meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg listener_methods[] = {
    {"address", l_address}, {"close", l_listener_close}, {NULL, NULL}};
static const luaL_Reg listener_meta[] = {{"__gc", l_listener_close}, {NULL, NULL}};
static const luaL_Reg lookup_methods[] = {
    {"result", l_result}, {"close", l_lookup_close}, {NULL, NULL}};
static const luaL_Reg lookup_meta[] = {{"__gc", l_lookup_close}, {NULL, NULL}};
static const luaL_Reg handle_meta[] = {{"__gc", l_handle_gc}, {NULL, NULL}};
static const luaL_Reg bell_meta[] = {{"__gc", l_bell_gc}, {NULL, NULL}};
static const luaL_Reg none[] = {{NULL, NULL}};

/* uv.raise_limit(): as many descriptors as the process may have at all. */
static int l_raise_limit(lua_State *L) {
  struct rlimit limit;
  bool ok = getrlimit(RLIMIT_NOFILE, &limit) == 0;
  limit.rlim_cur = limit.rlim_max;
  lua_pushboolean(L, ok && setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return 1;
}

static const luaL_Reg functions[] = {{"open", l_open},
                                     {"now", l_now},
                                     {"time", l_time},
                                     {"pid", l_pid},
                                     {"raise_limit", l_raise_limit},
                                     {NULL, NULL}};

int luaopen_keywatch_uv(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_uv);
  kw_add_class(L, KW_LOOP_NAME, loop_meta, loop_methods);
  kw_add_class(L, LISTENER_NAME, listener_meta, listener_methods);
  kw_add_class(L, LOOKUP_NAME, lookup_meta, lookup_methods);
  kw_add_class(L, HANDLE_NAME, handle_meta, none);
  kw_add_class(L, KW_BELL_NAME, bell_meta, none);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  kw_uv_add_threads(L);
#ifdef KW_PROBE
  kw_uv_push_probe(L);
  lua_setfield(L, -2, "probe");
#endif
  return 1;
}
