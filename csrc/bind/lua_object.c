/* SPDX-License-Identifier: MIT
 *
 * lua_object: finds and checks the store of a method; makes its hub; closes it.
 */
#include "bind/lua_error.h"
#include "bind/lua_reply.h"
#include "bind/lua_server.h"
#include "bind/lua_store.h"

kw_lua_store *kw_bind_find_store(lua_State *L) {
  kw_lua_store *self = lua_touserdata(L, 1);
  if (self == NULL || !lua_getmetatable(L, 1)) return NULL;
  bool is_store = lua_rawequal(L, -1, lua_upvalueindex(KW_UP_STORE_META)) ||
                  lua_rawequal(L, -1, lua_upvalueindex(KW_UP_DURABLE_META));
  lua_pop(L, 1);
  return is_store ? self : NULL;
}

kw_lua_store *kw_bind_check_self(lua_State *L) {
  kw_lua_store *self = kw_bind_find_store(L);
  luaL_argcheck(L, self != NULL, 1, KW_STORE_NAME " expected: call methods with a colon");
  return self;
}

static bool has_metatable(lua_State *L, int arg, const char *name) {
  if (!lua_getmetatable(L, arg)) return false;
  luaL_getmetatable(L, name);
  bool is_same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return is_same;
}

kw_lua_store *kw_bind_to_store(lua_State *L, int arg) {
  if (lua_touserdata(L, arg) != NULL && has_metatable(L, arg, KW_DURABLE_NAME))
    return lua_touserdata(L, arg);
  return luaL_checkudata(L, arg, KW_STORE_NAME);
}

void kw_bind_check_idle(lua_State *L, const kw_lua_store *self) {
  if (self->is_busy) kw_bind_refuse_finalizer(L, "store");
}

void kw_bind_check_process(lua_State *L, const kw_lua_store *self) {
  if (kw_store_is_inherited(self->store))
    luaL_error(L, "the store is that of the parent process: open it after the fork");
}

kw_lua_store *kw_bind_check_open(lua_State *L) {
  kw_lua_store *self = kw_bind_check_self(L);
  if (self->store == NULL) luaL_error(L, "the store is closed");
  kw_bind_check_process(L, self);
  kw_bind_check_idle(L, self);
  kw_arena_reset(&self->arena);
  return self;
}

int kw_bind_make_hub(kw_lua_store *self) {
  if (self->hub != NULL) return KW_OK;
  kw_hub_options options = kw_hub_defaults();
  options.hash_seed = self->hash_seed;
  options.progress_ms = self->progress_ms;
  self->hub = kw_hub_new(self->store, &options);
  return self->hub == NULL ? KW_ERR_NO_MEMORY : KW_OK;
}

void kw_bind_close_server(lua_State *L, kw_lua_server *self) {
  if (!self->is_open) return;
  kw_server_close(self->server);
  self->is_open = false;
  if (self->store == NULL) return;
  self->store = NULL;
  *self->prev = self->next;
  if (self->next != NULL) self->next->prev = self->prev;
  luaL_unref(L, LUA_REGISTRYINDEX, self->store_ref);
}

void kw_bind_close_store(lua_State *L, kw_lua_store *self) {
  self->must_close = false;
  kw_feed_part(&self->feed);
  while (self->servers != NULL) kw_bind_close_server(L, self->servers);
  if (self->hub != NULL) kw_hub_free(self->hub);
  if (self->store != NULL) kw_store_free(self->store);
  self->hub = NULL;
  self->store = NULL;
  kw_arena_drop(&self->arena);
}
