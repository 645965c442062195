/* SPDX-License-Identifier: MIT
 *
 * lua_message: converts Lua tables to encoded protobuf messages, and back. The descriptions of the messages are those
 * of codec/messages.h, which C uses, too.
 *
 *   core.encode("PutRequest", { key = "a", value = "b" }) -> "\x0a\x01a\x12\x01b"
 *   core.decode("PutRequest", "\x0a\x01a\x12\x01b")       -> { key = "a", value = "b" }, or nil and an error
 *
 * Names are those of the .proto files. A repeated field is a list. An enum is a string, or a number if it has no
 * name. A number that the VM cannot hold is a decimal string. A field that is zero, false or empty is absent,
 * except in a oneof and in lists. A message that is present is a table, even if it is empty.
 *
 * A third argument of decode limits the number of fields and list items of a message. Unknown and repeated fields
 * count, too. A message with more fails with the error request_too_large.
 *
 * encode calls no metamethods: no Lua code runs except finalizers. If a table does not fit the message, encode raises
 * an error that names the message and the field.
 */
#ifndef KW_BIND_LUA_MESSAGE_H
#define KW_BIND_LUA_MESSAGE_H

#include "base/common.h"
#include "face/compat.h"

/* Adds encode, decode, and `messages`, the list of all names, to the table on top of the stack. */
void kw_bind_add_messages(lua_State *L);

#endif
