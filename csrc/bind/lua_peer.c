/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "bind/lua_peer.h"

#include "base/clock.h"
#include "face/module.h"

#define MAX_PARTS 64
#define INEXACT_MS 1e-3 /* rounding error of a number of seconds, in milliseconds */
#define HOLDER_NAME "keywatch.core.holder"

int64_t kw_bind_clock_ms(void) {
  return kw_clock_ns() / 1000000;
}

int64_t kw_bind_opt_now(lua_State *L, int arg) {
  if (lua_isnoneornil(L, arg)) return kw_bind_clock_ms();
  return (int64_t)floor(luaL_checknumber(L, arg) * 1000 + INEXACT_MS);
}

int kw_bind_push_deadline(lua_State *L, int64_t when) {
  if (when == INT64_MAX) return 0;
  lua_pushnumber(L, (lua_Number)when / 1000);
  return 1;
}

/* {====== Holders ====== */

kw_blob **kw_bind_new_holder(lua_State *L) {
  return kw_new_object(L, HOLDER_NAME, sizeof(kw_blob *), 0);
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

/* {====== Pending bytes ====== */

static size_t opt_max(lua_State *L, int arg) {
  lua_Number max = luaL_optnumber(L, arg, (lua_Number)INT64_MAX);
  return max < 0 ? 0 : max >= (lua_Number)INT64_MAX ? SIZE_MAX : (size_t)max;
}

static size_t sum_of(const struct iovec *parts, size_t n) {
  size_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += parts[i].iov_len;
  return sum;
}

/* Returns the total size of the next pieces. */
static size_t measure(const kw_peer_face *face, void *peer) {
  struct iovec parts[MAX_PARTS];
  return sum_of(parts, face->pending(peer, parts, MAX_PARTS));
}

/* Copies up to `max` bytes of the next pieces, and counts them as written. Returns how many. */
static size_t take(const kw_peer_face *face, void *peer, char *to, size_t max) {
  struct iovec parts[MAX_PARTS];
  size_t n = face->pending(peer, parts, MAX_PARTS), sum = 0;
  for (size_t i = 0; i < n && sum < max; i++) {
    size_t len = kw_min_size(parts[i].iov_len, max - sum);
    memcpy(to + sum, parts[i].iov_base, len);
    sum += len;
  }
  face->wrote(peer, sum);
  return sum;
}

int kw_bind_push_pending(lua_State *L, int arg, void *(*peer_of)(lua_State *L),
                         const kw_peer_face *face) {
  size_t n, max = opt_max(L, arg);
  lua_pushliteral(L, "");
  while ((n = kw_min_size(measure(face, peer_of(L)), max)) > 0) {
    char *room = lua_newuserdatauv(L, n, 0);
    n = take(face, peer_of(L), room, n); /* again: finalizers may have run */
    lua_pushlstring(L, room, n);
    lua_remove(L, -2);
    lua_concat(L, 2);
    max -= n;
  }
  return 1;
}

/* }====== */
