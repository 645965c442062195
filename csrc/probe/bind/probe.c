/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "bind/lua_watch.h"
#include "face/module.h"
#include "probe/bind.h"
#include "probe/checks.h"
#include "probe/disk.h"
#include "probe/mem.h"

static _Thread_local lua_Alloc lua_alloc; /* the allocator of the Lua state, which ours calls */

kw_lua_store *kw_bind_check_store(lua_State *L, int arg) {
  kw_lua_store *self = kw_bind_to_store(L, arg);
  luaL_argcheck(L, self->store != NULL, arg, "the store is closed");
  return self;
}

static int l_check(lua_State *L) {
  const kw_lua_store *self = kw_bind_check_store(L, 1);
  const char *fault = kw_store_check(self->store);
  if (fault == NULL && self->hub != NULL) fault = kw_hub_check(self->hub);
  if (fault != NULL) return luaL_error(L, "invariant: %s", fault);
  lua_pushboolean(L, 1);
  return 1;
}

static int l_fail_core(lua_State *L) {
  kw_mem_fail_at((size_t)luaL_checkinteger(L, 1));
  return 0;
}

static void *failing_alloc(void *ud, void *p, size_t old, size_t new) {
  bool grows = new > 0 && (p == NULL || new > old);
  if (grows && kw_mem_must_fail()) return NULL;
  return lua_alloc(ud, p, old, new);
}

static int l_fail_all(lua_State *L) {
  void *ud;
  lua_Integer n = luaL_checkinteger(L, 1);
  lua_Alloc alloc = lua_getallocf(L, &ud);
  if (alloc != failing_alloc) {
    lua_alloc = alloc;
    lua_setallocf(L, failing_alloc, ud);
  }
  kw_mem_fail_from((size_t)n);
  return 0;
}

static int l_fail_none(lua_State *L) {
  void *ud;
  kw_mem_fail_at(0);
  kw_mem_fail_from(0);
  if (lua_getallocf(L, &ud) == failing_alloc) lua_setallocf(L, lua_alloc, ud);
  return 0;
}

/* {====== Collections at a given allocation ====== */

static _Thread_local lua_State *collected;
static _Thread_local size_t collect_in, collect_every;

static void *collecting_alloc(void *ud, void *p, size_t old, size_t new) {
  bool grows = new > 0 && (p == NULL || new > old);
  if (grows && collect_in > 0 && --collect_in == 0) {
    collect_in = collect_every;
    lua_gc(collected, LUA_GCRESTART, 0);
  }
  return lua_alloc(ud, p, old, new);
}

/* Allocates a new string in a call that does not start a collection. */
static void owe_memory(lua_State *L) {
  static _Thread_local unsigned n;
  char name[24];
  snprintf(name, sizeof name, "probe %u", n++);
  lua_getfield(L, LUA_REGISTRYINDEX, name);
  lua_pop(L, 1);
}

/* collect_at(n, every): a collection is due at the n-th allocation of Lua; at once if n is 0. With `every`,
 * another one is due after each `every` allocations more. */
static int l_collect_at(lua_State *L) {
  void *ud;
  lua_Integer n = luaL_checkinteger(L, 1);
  collect_every = (size_t)luaL_optinteger(L, 2, 0);
  collected = L;
  collect_in = n == 0 ? collect_every : (size_t)n;
  lua_Alloc alloc = lua_getallocf(L, &ud);
  if (alloc != collecting_alloc) {
    lua_alloc = alloc;
    lua_setallocf(L, collecting_alloc, ud);
  }
  if (n > 0) return 0;
  lua_gc(L, LUA_GCRESTART, 0);
  owe_memory(L);
  return 0;
}

/* collect_never(): ends that. Returns true if the collection of collect_at(n) has not become due. */
static int l_collect_never(lua_State *L) {
  void *ud;
  lua_pushboolean(L, collect_in > 0 && collect_every == 0);
  collect_in = 0;
  if (lua_getallocf(L, &ud) == collecting_alloc) lua_setallocf(L, lua_alloc, ud);
  return 1;
}

/* }====== */

static int l_allocations(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_count());
  return 1;
}

static int l_live(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_live());
  return 1;
}

static int l_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_bytes());
  return 1;
}

/* set_walk_visits(store, n): the work of a step for watchers. */
static int l_set_walk_visits(lua_State *L) {
  kw_lua_store *self = kw_bind_check_store(L, 1);
  if (kw_bind_make_hub(self) != KW_OK) return luaL_error(L, "no memory");
  kw_hub_set_walk_visits(self->hub, (int64_t)luaL_checkinteger(L, 2));
  return 0;
}

static int l_hash_visits(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_hash_visits);
  return 1;
}

static int l_snapshot_waits(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_snapshot_waits);
  return 1;
}

/* set_long_bytes(store, n): revisions of n bytes or more are delivered as long batches. */
static int l_set_long_bytes(lua_State *L) {
  kw_lua_store *self = kw_bind_check_store(L, 1);
  if (kw_bind_make_hub(self) != KW_OK) return luaL_error(L, "no memory");
  kw_hub_set_long_bytes(self->hub, (size_t)luaL_checkinteger(L, 2));
  return 0;
}

static const luaL_Reg probe[] = {{"check", l_check},
                                 {"set_walk_visits", l_set_walk_visits},
                                 {"set_long_bytes", l_set_long_bytes},
                                 {"fail_core", l_fail_core},
                                 {"fail_all", l_fail_all},
                                 {"fail_none", l_fail_none},
                                 {"collect_at", l_collect_at},
                                 {"collect_never", l_collect_never},
                                 {"allocations", l_allocations},
                                 {"hash_visits", l_hash_visits},
                                 {"snapshot_waits", l_snapshot_waits},
                                 {"live", l_live},
                                 {"bytes", l_bytes},
                                 {NULL, NULL}};

static void add_probe(lua_State *L) {
  lua_newtable(L);
  luaL_setfuncs(L, probe, 0);
  kw_bind_add_probe_codec(L);
  kw_bind_add_probe_connection(L);
  kw_bind_add_probe_disk(L);
  kw_bind_push_probe_journal(L);
  lua_setfield(L, -2, "journal");
  kw_bind_push_probe_http(L);
  lua_setfield(L, -2, "http");
  kw_bind_push_probe_stream(L);
  lua_setfield(L, -2, "stream");
  lua_setfield(L, -2, "probe");
}

__attribute__((constructor)) static void register_probe(void) {
  kw_module_probe = add_probe;
}
