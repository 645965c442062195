/* SPDX-License-Identifier: MIT
 *
 * lua_lookup: names of hosts: loop:resolve, which blocks, and loop:lookup, which does not.
 */
#include "face/module.h"
#include "uv/binding.h"
#include "uv/lookup.h"

#define LOOKUP_NAME "keywatch.uv.lookup"

/* loop:resolve(name): a list of IP addresses in digits; or nil, text and name of the error. Blocks. */
static int l_resolve(lua_State *L) {
  kw_address addresses[KW_LOOKUP_ADDRESSES];
  kw_uv_check_loop(L);
  const char *name = luaL_checkstring(L, 2);
  int n = kw_address_resolve(&kw_uv_check_loop(L)->uv, name, addresses, KW_LOOKUP_ADDRESSES);
  if (n < 0) return kw_uv_push_failure(L, n);
  kw_uv_push_hosts(L, addresses, n);
  return 1;
}

/* loop:lookup(name): a lookup, which ends a turn when it ends; or nil, text and name of the error. */
static int l_lookup(lua_State *L) {
  kw_uv_check_loop(L);
  const char *name = luaL_checkstring(L, 2);
  kw_new_object(L, LOOKUP_NAME, sizeof(void *), 0);
  int rc = kw_lookup_open(lua_touserdata(L, -1), kw_uv_check_loop(L), name);
  return rc == 0 ? 1 : kw_uv_push_failure(L, rc);
}

static kw_lookup **check_lookup(lua_State *L) {
  return luaL_checkudata(L, 1, LOOKUP_NAME);
}

/* lookup:result(): nil while the lookup is running; a list of IP addresses in digits; or false, text and name of the
 * error. */
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
    kw_uv_push_hosts(L, copies, n);
    return 1;
  }
  lua_pushboolean(L, 0);
  kw_uv_push_failure(L, n);
  lua_remove(L, -3);
  return 3;
}

/* lookup:close() */
static int l_lookup_close(lua_State *L) {
  kw_lookup **self = check_lookup(L);
  if (*self != NULL) kw_lookup_close(*self);
  *self = NULL;
  return 0;
}

void kw_uv_add_lookups(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_lookup_close}, {NULL, NULL}};
  static const luaL_Reg own[] = {{"result", l_result}, {"close", l_lookup_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"resolve", l_resolve}, {"lookup", l_lookup}, {NULL, NULL}};
  kw_add_class(L, LOOKUP_NAME, meta, own);
  luaL_setfuncs(L, methods, 0);
}
