/* SPDX-License-Identifier: MIT
 *
 * lua_loop: the loop in Lua. Its user value is the table of handles, see kw_uv_handle.
 */
#include <math.h>
#include <pthread.h>

#include "base/process.h"
#include "face/module.h"
#include "uv/binding.h"

static kw_loop **check_loop(lua_State *L) {
  return luaL_checkudata(L, 1, KW_LOOP_NAME);
}

kw_loop *kw_uv_check_loop(lua_State *L) {
  kw_loop *loop = *check_loop(L);
  if (loop == NULL) luaL_error(L, "the loop is closed");
  int rc = kw_loop_enter(loop);
  if (rc < 0) luaL_error(L, "keywatch: the loop cannot be used after fork: %s", uv_strerror(rc));
  return loop;
}

const kw_engine *kw_uv_check_engine(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, KW_ENGINE_KEY);
  const kw_engine *engine = lua_touserdata(L, -1);
  if (engine == NULL) luaL_error(L, "keywatch.core is not loaded: require it first");
  if (engine->version != KW_ENGINE_VERSION) {
    luaL_error(L,
               "keywatch.core has version %d of the engine, and keywatch.uv needs %d: rebuild both",
               (int)engine->version, KW_ENGINE_VERSION);
  }
  lua_pop(L, 1); /* the registry keeps it */
  return engine;
}

/* open(): a loop; or nil and the text of the error. */
static int l_open(lua_State *L) {
  kw_new_object(L, KW_LOOP_NAME, sizeof(void *), 1);
  lua_newtable(L);
  lua_setiuservalue(L, -2, 1);
  int rc = kw_loop_open(lua_touserdata(L, -1));
  if (rc == 0) return 1;
  lua_pushnil(L);
  lua_pushfstring(L, "keywatch: the event loop cannot be created: %s", uv_strerror(rc));
  return 2;
}

/* On Ctrl-C, Lua's interpreters set a hook that raises "interrupted!" when Lua code runs next. A debugger's hook cannot
 * be distinguished from it here. */
static bool is_hook_set(void *L) {
  return lua_gethook(L) != NULL;
}

/* loop:turn(seconds, bell_ends_turn): turns the loop, see kw_loop_turn. nil: no timeout. Seconds are rounded up to
 * milliseconds, so that a deadline has passed after waiting for it. A finalizer in the middle of a store's call must
 * not wait: 0 seconds do nothing, more raise an error. A hook that a signal handler sets ends the turn. */
static int l_turn(lua_State *L) {
  kw_loop *loop = kw_uv_check_loop(L);
  int64_t ms = -1;
  if (!lua_isnoneornil(L, 2)) {
    double seconds = luaL_checknumber(L, 2);
    ms = seconds < 1e12 ? (int64_t)ceil(seconds * 1000) : INT64_MAX / 2;
    if (ms < 0) ms = 0;
  }
  bool is_busy = kw_loop_is_busy(loop);
  if (is_busy && ms == 0) return 0;
  if (is_busy) luaL_error(L, "a store is in the middle of a call, and a finalizer has to wait");
  kw_loop_turn(loop, ms, lua_toboolean(L, 3), (kw_interrupt){is_hook_set, L});
  kw_uv_release_idle(L);
  return 0;
}

/* loop:fd(): a descriptor that becomes readable when there is something to do, see kw_loop_fd. */
static int l_fd(lua_State *L) {
  lua_pushinteger(L, kw_loop_fd(kw_uv_check_loop(L)));
  return 1;
}

/* loop:timeout(): the longest time to wait for the descriptor, in seconds; nil: unlimited. Returns 0 in a finalizer in
 * the middle of a store's call, where servers cannot be stepped. */
static int l_timeout(lua_State *L) {
  kw_loop *loop = kw_uv_check_loop(L);
  int64_t ms = kw_loop_is_busy(loop) ? 0 : kw_loop_timeout(loop);
  if (ms < 0) {
    lua_pushnil(L);
  } else {
    lua_pushnumber(L, (lua_Number)ms / 1000);
  }
  return 1;
}

/* loop:has_servers(): true if a server has listeners or connections. */
static int l_has_servers(lua_State *L) {
  lua_pushboolean(L, kw_loop_has_servers(kw_uv_check_loop(L)));
  return 1;
}

/* loop:flush(): writes all pending bytes, see kw_loop_flush. Does nothing in the middle of a store's call. */
static int l_flush(lua_State *L) {
  kw_loop *loop = kw_uv_check_loop(L);
  if (!kw_loop_is_busy(loop)) kw_loop_flush(loop);
  return 0;
}

/* loop:is_awaiting(): true if an event other than a timer could end a turn. */
static int l_is_awaiting(lua_State *L) {
  lua_pushboolean(L, kw_loop_is_awaiting(kw_uv_check_loop(L)));
  return 1;
}

/* loop:connections(): the number of connections that are not closed. */
static int l_connections(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_uv_check_loop(L)->connections);
  return 1;
}

static void set_number(lua_State *L, const char *name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

/* Pushes a histogram: { sum =, count =, bounds = {}, counts = {} }; counts[i] is the number of values up to
 * bounds[i]. */
static void push_histogram(lua_State *L, const kw_histogram *histogram) {
  const kw_buckets *buckets = histogram->buckets;
  double count = 0;
  lua_createtable(L, 0, 4);
  lua_newtable(L);
  lua_newtable(L);
  for (size_t i = 0; i < buckets->n; i++) {
    count += (double)histogram->counts[i];
    lua_pushnumber(L, (double)buckets->bounds[i] * buckets->unit);
    lua_rawseti(L, -3, (int)i + 1);
    lua_pushnumber(L, count);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -3, "counts");
  lua_setfield(L, -2, "bounds");
  set_number(L, "count", count + (double)histogram->counts[buckets->n]);
  set_number(L, "sum", histogram->sum * buckets->unit);
}

/* loop:turns(): a histogram of the times between two waits, in seconds, and the longest of them. */
static int l_turns(lua_State *L) {
  const kw_loop *loop = kw_uv_check_loop(L);
  kw_histogram turns = loop->turns; /* copies: finalizers may close the loop */
  double longest = (double)loop->longest_ms / 1000;
  push_histogram(L, &turns);
  lua_pushnumber(L, longest);
  return 2;
}

static kw_loop **leaving; /* object of the loop that is closed before this process forks; or NULL */
static pid_t leaving_pid; /* id of the process */

/* Called in the forking thread, before the fork. Ignores a loop that a parent of this process has registered. */
static void leave(void) {
  kw_loop **self = leaving;
  if (self == NULL || !kw_process_is(leaving_pid)) return;
  leaving = NULL;
  kw_loop *loop = *self;
  *self = NULL;
  if (loop != NULL) kw_loop_close(loop);
}

static void register_leave(void) {
  pthread_atfork(leave, NULL, NULL);
}

/* loop:leave_at_fork(): closes the loop before this process forks, so that no child inherits its descriptors. For one
 * loop of a process, whose thread is the one that forks. */
static int l_leave_at_fork(lua_State *L) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  kw_uv_check_loop(L);
  pthread_once(&once, register_leave);
  leaving = check_loop(L);
  leaving_pid = kw_process_id();
  return 0;
}

/* loop:close() */
static int l_close(lua_State *L) {
  kw_loop **self = check_loop(L);
  if (leaving == self) leaving = NULL;
  if (*self == NULL) return 0;
  kw_loop_enter(*self);
  kw_loop_close(*self);
  *self = NULL;
  kw_uv_release_idle(L);
  return 0;
}

static const luaL_Reg loop_methods[] = {{"turn", l_turn},
                                        {"fd", l_fd},
                                        {"timeout", l_timeout},
                                        {"has_servers", l_has_servers},
                                        {"flush", l_flush},
                                        {"is_awaiting", l_is_awaiting},
                                        {"connections", l_connections},
                                        {"turns", l_turns},
                                        {"leave_at_fork", l_leave_at_fork},
                                        {"close", l_close},
                                        {NULL, NULL}};
static const luaL_Reg loop_meta[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg functions[] = {{"open", l_open}, {NULL, NULL}};

void kw_uv_add_loop(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
  kw_add_class(L, KW_LOOP_NAME, loop_meta, loop_methods);
  luaL_getmetatable(L, KW_LOOP_NAME);
  lua_getfield(L, -1, "__index");
  lua_remove(L, -2);
}
