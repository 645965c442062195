/* SPDX-License-Identifier: MIT
 *
 * lua_password: hashes passwords with bcrypt, by the system's libcrypt. bcrypt is slow on purpose: at etcd's cost,
 * 10, it blocks the thread for about 50 ms.
 */
#ifndef KW_BIND_LUA_PASSWORD_H
#define KW_BIND_LUA_PASSWORD_H

#include "face/compat.h"

/* core.hash_password(text, cost): the hash, with a new random salt; or nil and a sentence. bcrypt uses only the
 * first 72 bytes of the text. */
int kw_bind_hash_password(lua_State *L);

#endif
