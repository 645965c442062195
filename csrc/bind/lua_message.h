/* SPDX-License-Identifier: MIT
 *
 * lua_message: the messages of the wire as Lua tables, by the same descriptions that C goes by.
 *
 *   core.encode("PutRequest", { key = "a", value = "b" }) -> "\x0a\x01a\x12\x01b"
 *   core.decode("PutRequest", "\x0a\x01a\x12\x01b")       -> { key = "a", value = "b" }, or nil and an error
 *
 * Names are those of the .proto files. What repeats is a list; enums are strings, or numbers if they have no name;
 * numbers that the VM cannot hold are decimal strings. What is zero, false or empty is absent, except for members of a
 * oneof and in lists. A message that is there is a table, even if it says nothing.
 *
 * To encode, tables are read raw: no Lua code runs but finalizers. What a message cannot say raises, by its name and
 * that of the field.
 */
#ifndef KW_BIND_LUA_MESSAGE_H
#define KW_BIND_LUA_MESSAGE_H

#include "base/common.h"
#include "face/compat.h"

/* Adds encode, decode and messages, the list of all names, to the table on top of the stack. */
void kw_bind_add_messages(lua_State *L);

#endif
