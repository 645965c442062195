/* SPDX-License-Identifier: MIT
 *
 * lua_fields: the fields of HTTP's heads as lists: { name, value, name, value, ... }.
 */
#ifndef KW_BIND_LUA_FIELDS_H
#define KW_BIND_LUA_FIELDS_H

#include "base/blob.h"
#include "face/compat.h"
#include "http/head.h"

/* Reads a list at an index of the stack, which owns the bytes. Returns the number of fields. Raises if it has more than
 * KW_HEAD_FIELDS. */
size_t kw_bind_check_fields(lua_State *L, int index, kw_http_field fields[KW_HEAD_FIELDS]);

/* Pushes the list of fields that kw_call_metadata has packed. The caller retains the blob. */
void kw_bind_push_fields(lua_State *L, const kw_blob *packed);

#endif
