/* SPDX-License-Identifier: MIT
 *
 * lua_fields: the fields of HTTP heads as Lua lists: { name, value, name, value, ... }.
 */
#ifndef KW_BIND_LUA_FIELDS_H
#define KW_BIND_LUA_FIELDS_H

#include "base/blob.h"
#include "face/compat.h"
#include "http/head.h"

/* Reads the list at a stack index, without spaces around values. Returns the number of fields. They point into the
 * strings of the list, and are valid as long as these. Raises if the value is not a list of strings, or has more than
 * KW_HEAD_FIELDS fields. */
size_t kw_bind_check_fields(lua_State *L, int index, kw_http_field fields[KW_HEAD_FIELDS]);

/* Pushes the list of packed texts, each of which ends with a 0. The caller keeps the bytes: finalizers may run. */
void kw_bind_push_fields(lua_State *L, kw_slice packed);

#endif
