/* SPDX-License-Identifier: MIT
 *
 * lua_value: single values between Lua and C, with one policy for numbers.
 *
 * Revisions, versions and counts are numbers. An id may use all 64 bits: where a number cannot hold it (LuaJIT, from
 * 2^53 on), it is a decimal string. Where an id is read, a number and a decimal string are both accepted; a number that
 * may stand for another one, since doubles are rounded, is refused.
 * Conversions never run Lua code. Those named `check` raise on misuse; those named `to` return false.
 */
#ifndef KW_BIND_LUA_VALUE_H
#define KW_BIND_LUA_VALUE_H

#include "base/common.h"
#include "base/slice.h"
#include "face/compat.h"

/* Pushes a number. LuaJIT rounds it beyond 2^53. */
void kw_bind_push_int(lua_State *L, int64_t v);

/* Pushes an id. */
void kw_bind_push_id(lua_State *L, int64_t id);

/* Pushes an unsigned number. In Lua 5.4, a number from 2^63 on is pushed as a negative one. */
void kw_bind_push_uint(lua_State *L, uint64_t v);

/* Pushes an unsigned number as a decimal string. */
void kw_bind_push_decimal(lua_State *L, uint64_t v);

/* Pushes the bytes as a string. */
void kw_bind_push_slice(lua_State *L, kw_slice bytes);

/* Sets the field `name` of the table on top of the stack. */
void kw_bind_set_int(lua_State *L, const char *name, int64_t v);
void kw_bind_set_id(lua_State *L, const char *name, int64_t id);
void kw_bind_set_bool(lua_State *L, const char *name, bool v);

/* Reads the value at index `at`. Returns false if it is not a whole number, or is inexact. Strings are not
 * converted. */
bool kw_bind_to_int(lua_State *L, int at, int64_t *v);

/* True if the value at index `at` is a number that may stand for another whole number: on LuaJIT, 2^53 and beyond. */
bool kw_bind_is_inexact(lua_State *L, int at);

/* Reads the value at index `at`. Returns false if it is not an id: a whole number, or a decimal string. */
bool kw_bind_to_id(lua_State *L, int at, int64_t *id);

/* Reads the value at index `at`, a whole number or a decimal string. Returns false if it is neither, or takes more than
 * 64 bits. A negative number means the unsigned one with the same bits. */
bool kw_bind_to_uint(lua_State *L, int at, uint64_t *v);

/* Returns an argument that must be a string. Numbers are not converted. */
kw_slice kw_bind_check_bytes(lua_State *L, int arg);

/* Returns an argument that must be a whole number of at least `min`. */
int64_t kw_bind_check_int(lua_State *L, int arg, int64_t min);

/* Returns an argument that must be an id. */
int64_t kw_bind_check_id(lua_State *L, int arg);

/* Returns a seed of hashes: made of `given`, so that all runs have the same one; or a secret one, if `given` is
 * negative. Raises if the system has no random numbers. */
uint64_t kw_bind_seed(lua_State *L, int64_t given);

/* Returns the bytes of the value at index `at`, which must be a string. They live as long as the string. */
kw_slice kw_bind_bytes(lua_State *L, int at);

#endif
