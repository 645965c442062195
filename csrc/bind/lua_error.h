/* SPDX-License-Identifier: MIT
 *
 * lua_error: failures of the world as Lua objects.
 *
 *   { code = "compacted", message = "etcdserver: ...", grpc_status = 11, compact_revision = 7 }
 *
 * An error that has ended a task also has the field `traceback`, which Lua sets; tostring ends with it.
 */
#ifndef KW_BIND_LUA_ERROR_H
#define KW_BIND_LUA_ERROR_H

#include "base/common.h"
#include "face/compat.h"

/* Pushes the metatable of errors, which is made on first use. */
void kw_bind_push_error_meta(lua_State *L);

/* Pushes a function that makes an error of a code: what Lua itself finds out has the same form. */
void kw_bind_push_error_new(lua_State *L);

/* Pushes a function that makes an error of a gRPC status and its text, as a server has answered them. */
void kw_bind_push_error_of(lua_State *L);

/* Pushes nil and an error; `meta` is where the metatable stands. Returns 2. */
int kw_bind_push_failure(lua_State *L, int meta, int rc);

/* Replaces the message of the error on top of the stack, unless the text is empty. */
void kw_bind_set_message(lua_State *L, const char *text);

/* Raises: `what`, a noun such as "store", is in the middle of a call, and a finalizer may not use it. */
void kw_bind_refuse_finalizer(lua_State *L, const char *what);

#endif
