/* SPDX-License-Identifier: MIT */
#include "bind/probe.h"

#ifdef KW_PROBE

#include "base/mem.h"
#include "bind/lua_store.h"
#include "bind/probe_codec.h"
#include "bind/probe_connection.h"
#include "bind/probe_disk.h"
#include "bind/probe_stream.h"

static _Thread_local lua_Alloc lua_alloc; /* the allocator of the state, behind ours */

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

static int l_allocations(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_count());
  return 1;
}

static int l_live(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_live());
  return 1;
}

static const luaL_Reg probe[] = {{"check", l_check},
                                 {"fail_core", l_fail_core},
                                 {"fail_all", l_fail_all},
                                 {"fail_none", l_fail_none},
                                 {"allocations", l_allocations},
                                 {"live", l_live},
                                 {NULL, NULL}};

void kw_bind_push_probe(lua_State *L) {
  lua_newtable(L);
  luaL_setfuncs(L, probe, 0);
  kw_bind_add_probe_codec(L);
  kw_bind_add_probe_connection(L);
  kw_bind_add_probe_disk(L);
  kw_bind_push_probe_stream(L);
  lua_setfield(L, -2, "stream");
}

#endif
