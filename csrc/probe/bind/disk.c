/* SPDX-License-Identifier: MIT */
#include "probe/bind.h"

#include <stdatomic.h>

#include "disk/pause.h"
#include "probe/disk.h"
#include "store/state.h"

static kw_committer *check_committer(lua_State *L) {
  kw_committer *committer = kw_bind_check_store(L, 1)->store->committer;
  luaL_argcheck(L, committer != NULL, 1, "the store is in memory");
  return committer;
}

/* hold_disk(store, hold): while held, commit groups are submitted but not written. */
static int l_hold(lua_State *L) {
  kw_committer_hold(check_committer(L), lua_toboolean(L, 2));
  return 0;
}

/* hold_checkpoints(store, hold): while held, commit groups become durable in the journal alone. */
static int l_hold_checkpoints(lua_State *L) {
  kw_committer_hold_checkpoints(check_committer(L), lua_toboolean(L, 2));
  return 0;
}

/* fail_disk(store, how): the next commit group fails. "no_space" and "no_memory": before anything was written;
 * "storage": the outcome is unknown. */
static int l_fail(lua_State *L) {
  static const char *const names[] = {"no_space", "no_memory", "storage", NULL};
  static const int codes[] = {KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY, KW_ERR_STORAGE};
  kw_committer_fail_next(check_committer(L), codes[luaL_checkoption(L, 2, NULL, names)]);
  return 0;
}

/* flush_disk(store): submits the committed writes if the disk is idle, and there is no pause. Does not wait. */
static int l_flush(lua_State *L) {
  check_committer(L);
  kw_store_flush(kw_bind_check_store(L, 1)->store);
  return 0;
}

/* {====== A bell that counts who holds it ====== */

static atomic_int holders;

static void ring(void *ctx) {
  (void)ctx;
}

static void retain(void *ctx) {
  atomic_fetch_add((atomic_int *)ctx, 1);
}

static void release(void *ctx) {
  atomic_fetch_sub((atomic_int *)ctx, 1);
}

/* set_bell(store, is_there): gives the store a bell, or none. Returns how many references to this bell are held. */
static int l_set_bell(lua_State *L) {
  kw_bell bell = {0};
  if (lua_toboolean(L, 2)) bell = (kw_bell){ring, retain, release, &holders};
  kw_store_set_bell(kw_bind_check_store(L, 1)->store, kw_bell_retain(&bell));
  lua_pushinteger(L, atomic_load(&holders));
  return 1;
}

/* }====== */

/* pauses(writes, back...): as many groups of `writes` writes each become durable as there are numbers `back`, and each
 * time so many writers come back in time. Returns for each group whether a pause follows it. */
static int l_pauses(lua_State *L) {
  kw_pause pause = {0};
  int64_t writes = luaL_checkinteger(L, 1), newest = writes, now = 1;
  int n = lua_gettop(L);
  for (int i = 2; i <= n; i++) {
    int64_t back = luaL_checkinteger(L, i);
    kw_pause_begin(&pause, now, KW_SLOW_FLUSH_NS, writes, newest);
    lua_pushboolean(L, pause.until != 0);
    lua_replace(L, i);
    newest += back;
    if (pause.until != 0) now = pause.until;
    kw_pause_lasts(&pause, now, newest);
  }
  return n - 1;
}

static const luaL_Reg functions[] = {{"hold_disk", l_hold},
                                     {"hold_checkpoints", l_hold_checkpoints},
                                     {"fail_disk", l_fail},
                                     {"flush_disk", l_flush},
                                     {"set_bell", l_set_bell},
                                     {"pauses", l_pauses},
                                     {NULL, NULL}};

void kw_bind_add_probe_disk(lua_State *L) {
  luaL_setfuncs(L, functions, 0);
}
