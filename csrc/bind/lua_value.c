/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bind/lua_value.h"

#include "base/decimal.h"
#include "base/hash.h"
#include "base/random.h"

/* Below this a double represents every whole number exactly; 2^53 may be a rounded 2^53 + 1. */
#define EXACT_MAX (INT64_C(1) << 53)

void kw_bind_push_int(lua_State *L, int64_t v) {
#if KW_INTEGERS
  lua_pushinteger(L, v);
#else
  lua_pushnumber(L, (lua_Number)v);
#endif
}

void kw_bind_push_id(lua_State *L, int64_t id) {
  if (KW_INTEGERS || (id > -EXACT_MAX && id < EXACT_MAX)) {
    kw_bind_push_int(L, id);
    return;
  }
  char text[24];
  int len = snprintf(text, sizeof text, "%" PRId64, id);
  lua_pushlstring(L, text, (size_t)len);
}

void kw_bind_push_uint(lua_State *L, uint64_t v) {
  if (KW_INTEGERS || v < EXACT_MAX) {
    kw_bind_push_int(L, (int64_t)v);
  } else {
    kw_bind_push_decimal(L, v);
  }
}

void kw_bind_push_decimal(lua_State *L, uint64_t v) {
  char text[20], *end = text + sizeof text, *at = kw_decimal_write_digits(end, v);
  lua_pushlstring(L, at, (size_t)(end - at));
}

void kw_bind_push_slice(lua_State *L, kw_slice bytes) {
  lua_pushlstring(L, (const char *)bytes.data, bytes.len);
}

void kw_bind_set_int(lua_State *L, const char *name, int64_t v) {
  kw_bind_push_int(L, v);
  lua_setfield(L, -2, name);
}

void kw_bind_set_id(lua_State *L, const char *name, int64_t id) {
  kw_bind_push_id(L, id);
  lua_setfield(L, -2, name);
}

void kw_bind_set_bool(lua_State *L, const char *name, bool v) {
  lua_pushboolean(L, v);
  lua_setfield(L, -2, name);
}

bool kw_bind_to_int(lua_State *L, int at, int64_t *v) {
  if (lua_type(L, at) != LUA_TNUMBER) return false;
#if KW_INTEGERS
  int is_whole;
  *v = lua_tointegerx(L, at, &is_whole);
  return is_whole;
#else
  lua_Number x = lua_tonumber(L, at);
  if (!(x > -(lua_Number)EXACT_MAX && x < (lua_Number)EXACT_MAX)) return false;
  *v = (int64_t)x;
  return (lua_Number)*v == x;
#endif
}

static bool parse_id(const char *text, size_t len, int64_t *id) {
  char *end;
  if (len == 0 || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9'))) return false;
  errno = 0;
  *id = strtoll(text, &end, 10);
  return errno == 0 && end == text + len;
}

bool kw_bind_to_id(lua_State *L, int at, int64_t *id) {
  if (lua_type(L, at) != LUA_TSTRING) return kw_bind_to_int(L, at, id);
  size_t len;
  const char *text = lua_tolstring(L, at, &len);
  return parse_id(text, len, id);
}

bool kw_bind_to_uint(lua_State *L, int at, uint64_t *v) {
  int64_t number = 0;
  char *end;
  if (kw_bind_to_id(L, at, &number)) {
    *v = (uint64_t)number;
    return true;
  }
  if (lua_type(L, at) != LUA_TSTRING) return false;
  kw_slice text = kw_bind_bytes(L, at);
  if (text.len == 0 || text.data[0] < '0' || text.data[0] > '9') return false;
  errno = 0;
  *v = strtoull((const char *)text.data, &end, 10);
  return errno == 0 && end == (const char *)text.data + text.len;
}

uint64_t kw_bind_seed(lua_State *L, int64_t given) {
  uint64_t seed = 0;
  if (given >= 0) return kw_hash_number((uint64_t)given, 1);
  if (!kw_random_draw(&seed)) luaL_error(L, "keywatch: the system has no random numbers");
  return seed;
}

kw_slice kw_bind_bytes(lua_State *L, int at) {
  size_t len;
  const char *data = lua_tolstring(L, at, &len);
  return kw_slice_of(data, len);
}

kw_slice kw_bind_check_bytes(lua_State *L, int arg) {
  luaL_checktype(L, arg, LUA_TSTRING);
  return kw_bind_bytes(L, arg);
}

bool kw_bind_is_inexact(lua_State *L, int at) {
  if (KW_INTEGERS || lua_type(L, at) != LUA_TNUMBER) return false;
  lua_Number x = lua_tonumber(L, at);
  return x <= -(lua_Number)EXACT_MAX || x >= (lua_Number)EXACT_MAX;
}

int64_t kw_bind_check_int(lua_State *L, int arg, int64_t min) {
  int64_t v = 0;
  luaL_checktype(L, arg, LUA_TNUMBER);
  luaL_argcheck(L, !kw_bind_is_inexact(L, arg), arg, "a number of 2^53 or more is not exact");
  luaL_argcheck(L, kw_bind_to_int(L, arg, &v), arg, "a whole number expected");
  luaL_argcheck(L, v >= min, arg, min == 0 ? "must not be negative" : "too small");
  return v;
}

int64_t kw_bind_check_id(lua_State *L, int arg) {
  int64_t id = 0;
  luaL_argcheck(L, !kw_bind_is_inexact(L, arg), arg,
                "a number of 2^53 or more is not exact: give a decimal string");
  luaL_argcheck(L, kw_bind_to_id(L, arg, &id), arg,
                "an id expected: a whole number, or a decimal string");
  return id;
}
