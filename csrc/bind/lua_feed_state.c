/* SPDX-License-Identifier: MIT */
#include "bind/lua_feed_state.h"

#include "bind/lua_error.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "model/error.h"

#define STATE_NAME "keywatch.core.feed_state"

/* The user value of the object is a list: key and range_end, into which the slices of the range point. */
typedef struct lua_state {
  kw_feed_state state;
  bool is_open;
} lua_state;

static lua_state *check_open(lua_State *L, int i) {
  lua_state *self = luaL_checkudata(L, i, STATE_NAME);
  if (!self->is_open) luaL_error(L, "the state is closed");
  return self;
}

kw_feed_state *kw_bind_check_feed_state(lua_State *L, int i) {
  return &check_open(L, i)->state;
}

static int l_feed_state(lua_State *L) {
  kw_slice key = kw_bind_check_bytes(L, 1), end = kw_bind_check_bytes(L, 2);
  lua_settop(L, 2);
  lua_state *self = kw_new_object(L, STATE_NAME, sizeof *self, 1);
  self->state.range = (kw_range){.key = key, .end = end};
  lua_createtable(L, 2, 0);
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, 2);
  lua_rawseti(L, -2, 2);
  lua_setiuservalue(L, -2, 1);
  self->is_open = true;
  return 1;
}

static int l_add(lua_State *L) {
  lua_state *self = check_open(L, 1);
  kw_slice page = kw_bind_check_bytes(L, 2);
  size_t before = self->state.n;
  int rc = kw_feed_state_add(&self->state, page, lua_toboolean(L, 3));
  bool has_more = self->state.has_more;
  int64_t n = (int64_t)(self->state.n - before);
  if (rc != KW_OK) {
    kw_bind_push_error_meta(L);
    return kw_bind_push_failure(L, lua_gettop(L), rc);
  }
  lua_pushboolean(L, 1);
  lua_pushboolean(L, has_more);
  kw_bind_push_int(L, n);
  return 3;
}

/* The memory for the copy of the key is allocated first: a finalizer may close the state, or add a page. */
static int l_last(lua_State *L) {
  lua_state *self = check_open(L, 1);
  void *copy;
  size_t room;
  lua_settop(L, 2);
  do {
    room = kw_feed_state_last_key(&self->state).len;
    copy = lua_newuserdatauv(L, room, 0);
    lua_replace(L, 2);
    self = check_open(L, 1);
  } while (kw_feed_state_last_key(&self->state).len > room);
  kw_slice key = kw_feed_state_last_key(&self->state);
  int64_t revision = self->state.revision, n = (int64_t)self->state.n;
  memcpy(copy, key.data, key.len);
  kw_bind_push_slice(L, kw_slice_of(copy, key.len));
  kw_bind_push_int(L, revision);
  kw_bind_push_int(L, n);
  return 3;
}

static int l_close(lua_State *L) {
  lua_state *self = luaL_checkudata(L, 1, STATE_NAME);
  if (!self->is_open) return 0;
  kw_feed_state_drop(&self->state);
  self->is_open = false;
  return 0;
}

static const luaL_Reg methods[] = {
    {"add", l_add}, {"last", l_last}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_feed_state(lua_State *L) {
  kw_add_class(L, STATE_NAME, meta, methods);
  lua_pushcfunction(L, l_feed_state);
}
