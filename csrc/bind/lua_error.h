/* SPDX-License-Identifier: MIT
 *
 * lua_error: errors as Lua objects. They are returned, not raised: misuse is raised as a text.
 *
 *   { code = "compacted", message = "etcdserver: ...", grpc_status = 11, compact_revision = 7 }
 *
 * tostring gives "message (code)". The field `where`, if there is one, precedes that; the field `traceback`, which Lua
 * sets on an error that has ended a task, follows. An error can be concatenated.
 */
#ifndef KW_BIND_LUA_ERROR_H
#define KW_BIND_LUA_ERROR_H

#include "base/common.h"
#include "face/compat.h"

/* Pushes the metatable of errors. The first call makes it. */
void kw_bind_push_error_meta(lua_State *L);

/* Pushes the function core.new_error(code), which makes an error. It raises if there is no such code. */
void kw_bind_push_error_new(lua_State *L);

/* Pushes the function core.error_of(status, text), which makes the error of a server's gRPC status. The code follows
 * from status and text. */
void kw_bind_push_error_of(lua_State *L);

/* Pushes nil and the error of `rc`, a KW_ERR_ code; returns 2. The metatable of errors is at stack index `meta`. */
int kw_bind_push_failure(lua_State *L, int meta, int rc);

/* Replaces the message of the error on top of the stack, unless the text is empty. */
void kw_bind_set_message(lua_State *L, const char *text);

/* Raises an error that says: `what`, a noun such as "store", is in the middle of a call, and a finalizer has to wait.
 * Does not return. */
void kw_bind_refuse_finalizer(lua_State *L, const char *what);

#endif
