/* SPDX-License-Identifier: MIT
 *
 * lua_json_call: what the functions for JSON have in common. For the files of lua_json alone.
 */
#ifndef KW_BIND_LUA_JSON_CALL_H
#define KW_BIND_LUA_JSON_CALL_H

#include "base/common.h"
#include "face/compat.h"

#define KW_JSON_MAX_BYTES                                                                          \
  (INT64_C(64) << 20)                    /* of a text, unless the option `max_bytes` is given */
#define KW_JSON_EXACT (INT64_C(1) << 53) /* a double represents every whole number up to here */
#define KW_JSON_MESSAGE 512              /* bytes of the message of an error */

/* Upvalues of both functions: a scratch or nil, and the metatables of errors, of arrays and of orders. */
enum { KW_JSON_SCRATCH = 1, KW_JSON_ERROR, KW_JSON_MARK, KW_JSON_ORDER };

/* Stack of both functions: the argument, the options, the scratch. */
enum { KW_JSON_SCRATCH_AT = 3 };

/* Returns the scratch to its upvalue, and pushes nil and an error of `rc` with a message. Returns 2. */
int kw_bind_json_fail(lua_State *L, int rc, const char *message);

/* Raises if an option is not in a range. `what` names the function. */
void kw_bind_json_check_range(lua_State *L, const char *what, const char *option, int64_t v,
                              int min, int max);

/* Raises if the limits of a text are out of range. */
void kw_bind_json_check_limits(lua_State *L, const char *what, int64_t depth, int64_t max_bytes);

/* json_encode(value, options): the text, or nil and an error. */
int kw_bind_json_encode(lua_State *L);

/* json_items(text, index): describes the object or array at an index of the text. Returns a list of indexes, four for
 * each item: of its first byte, of the byte after its name, of its value, and of the byte after its value. The last
 * index is the one of the closing bracket. An element of an array has an empty name. Returns nothing if the object or
 * array is incomplete. */
int kw_bind_json_items(lua_State *L);

#endif
