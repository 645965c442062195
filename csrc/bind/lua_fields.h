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

/* Pushes the list of fields that kw_call_metadata has packed. The caller retains the blob. */
void kw_bind_push_fields(lua_State *L, const kw_blob *packed);

#endif
