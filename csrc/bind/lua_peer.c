/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <time.h>

#include "bind/lua_peer.h"

#include "face/module.h"

#define MAX_PARTS 64
#define HOLDER_NAME "keywatch.core.holder"

int64_t kw_bind_clock_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t kw_bind_opt_now(lua_State *L, int arg) {
  return lua_isnoneornil(L, arg) ? kw_bind_clock_ms()
                                 : (int64_t)llround(luaL_checknumber(L, arg) * 1000);
}

int kw_bind_push_deadline(lua_State *L, int64_t when) {
  if (when == INT64_MAX) return 0;
  lua_pushnumber(L, (lua_Number)when / 1000);
  return 1;
}

static size_t opt_max(lua_State *L, int arg) {
  lua_Number max = luaL_optnumber(L, arg, (lua_Number)INT64_MAX);
  return max < 0 ? 0 : max >= (lua_Number)INT64_MAX ? SIZE_MAX : (size_t)max;
}

int kw_bind_push_pending(lua_State *L, int arg, void *peer, kw_pending_fn pending,
                         kw_wrote_fn wrote) {
  struct iovec parts[MAX_PARTS];
  luaL_Buffer buffer;
  size_t n, max = opt_max(L, arg);
  luaL_buffinit(L, &buffer);
  while (max > 0 && (n = pending(peer, parts, MAX_PARTS)) > 0) {
    size_t sum = 0;
    for (size_t i = 0; i < n && sum < max; i++) {
      size_t len = kw_min_size(parts[i].iov_len, max - sum);
      luaL_addlstring(&buffer, parts[i].iov_base, len);
      sum += len;
    }
    wrote(peer, sum);
    max -= sum;
  }
  luaL_pushresult(&buffer);
  return 1;
}

/* {====== Holders ====== */

kw_blob **kw_bind_new_holder(lua_State *L) {
  kw_blob **holder = lua_newuserdatauv(L, sizeof *holder, 0);
  *holder = NULL;
  luaL_getmetatable(L, HOLDER_NAME);
  lua_setmetatable(L, -2);
  return holder;
}

static void release(kw_blob **holder) {
  if (*holder != NULL) kw_blob_release(*holder);
  *holder = NULL;
}

void kw_bind_push_held(lua_State *L, kw_blob **holder) {
  kw_slice bytes = *holder == NULL ? kw_slice_of("", 0) : kw_blob_slice(*holder);
  lua_pushlstring(L, (const char *)bytes.data, bytes.len);
  release(holder);
}

static int l_holder_gc(lua_State *L) {
  release(lua_touserdata(L, 1));
  return 0;
}

void kw_bind_add_holder(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_holder_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  kw_add_class(L, HOLDER_NAME, meta, none);
}

/* }====== */
