/* SPDX-License-Identifier: MIT
 *
 * lua_message: encodes Lua tables as protobuf messages and decodes them. The descriptions are those that C uses.
 *
 *   core.encode("PutRequest", { key = "a", value = "b" }) -> "\x0a\x01a\x12\x01b"
 *   core.decode("PutRequest", "\x0a\x01a\x12\x01b")       -> { key = "a", value = "b" }, or nil and an error
 *
 * Names are those of the .proto files. A repeated field is a list. An enum is a string, or a number if it has no
 * name. A number that the VM cannot hold is a decimal string. A field that is zero, false or empty is absent,
 * except in a oneof and in lists. A message that is present is a table, even if it is empty.
 *
 * A third argument of decode limits the number of fields and list items that are read, also those that occur twice
 * and unknown ones: the error beyond it is request_too_large.
 *
 * encode reads tables raw: no Lua code runs except finalizers. It raises if a table does not fit the message, and
 * names the message and the field.
 */
#ifndef KW_BIND_LUA_MESSAGE_H
#define KW_BIND_LUA_MESSAGE_H

#include "base/common.h"
#include "face/compat.h"

/* Adds encode, decode, and `messages`, the list of all names, to the table on top of the stack. */
void kw_bind_add_messages(lua_State *L);

#endif
