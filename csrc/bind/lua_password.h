/* SPDX-License-Identifier: MIT
 *
 * lua_password: passwords as they are kept: hashed with bcrypt, by the system's libcrypt. To take long is what bcrypt
 * is for: at etcd's cost, 10, some 50 ms, for which the thread is blocked.
 */
#ifndef KW_BIND_LUA_PASSWORD_H
#define KW_BIND_LUA_PASSWORD_H

#include "face/compat.h"

/* core.hash_password(text, cost): the hash, of a salt of its own; or nil and a sentence. Of a text only the first 72
 * bytes count. */
int kw_bind_hash_password(lua_State *L);

#endif
