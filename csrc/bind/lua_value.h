/* SPDX-License-Identifier: MIT
 *
 * lua_value: single values between Lua and C, with one policy for numbers.
 *
 * Revisions, versions and counts are numbers. Ids may use all 64 bits: where a number cannot hold one (LuaJIT, beyond
 * 2^53) it is a decimal string; a string or a number is taken everywhere. Conversions never run Lua code, and
 * raise on misuse, naming what they were given.
 */
#ifndef KW_BIND_LUA_VALUE_H
#define KW_BIND_LUA_VALUE_H

#include "base/common.h"
#include "base/slice.h"
#include "face/compat.h"

void kw_bind_push_int(lua_State *L, int64_t v);
void kw_bind_push_id(lua_State *L, int64_t id);
/* All 64 bits without a sign: in a number of Lua 5.4, what is beyond 2^63 is negative. */
void kw_bind_push_uint(lua_State *L, uint64_t v);
/* The same as a decimal string. */
void kw_bind_push_decimal(lua_State *L, uint64_t v);
void kw_bind_push_slice(lua_State *L, kw_slice bytes);

/* Sets the field `name` of the table on top of the stack. */
void kw_bind_set_int(lua_State *L, const char *name, int64_t v);
void kw_bind_set_id(lua_State *L, const char *name, int64_t id);
void kw_bind_set_bool(lua_State *L, const char *name, bool v);

/* False if the value is not a whole number that fits; here, and for ids, nothing is raised. */
bool kw_bind_to_int(lua_State *L, int at, int64_t *v);
bool kw_bind_to_id(lua_State *L, int at, int64_t *id);
/* What is negative stands for the same 64 bits. */
bool kw_bind_to_uint(lua_State *L, int at, uint64_t *v);

/* An argument that must be a string, a whole number of at least `min`, or an id. */
kw_slice kw_bind_check_bytes(lua_State *L, int arg);
int64_t kw_bind_check_int(lua_State *L, int arg, int64_t min);
int64_t kw_bind_check_id(lua_State *L, int arg);

/* The bytes of a string that is known to be one. They live as long as the string. */
kw_slice kw_bind_bytes(lua_State *L, int at);

#endif
