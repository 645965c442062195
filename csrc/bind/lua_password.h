/* SPDX-License-Identifier: MIT
 *
 * lua_password: hashes passwords with bcrypt, by the system's libcrypt. bcrypt is slow on purpose: at etcd's cost,
 * 10, it blocks the thread for about 50 ms.
 */
#ifndef KW_BIND_LUA_PASSWORD_H
#define KW_BIND_LUA_PASSWORD_H

#include "face/compat.h"

/* The function core.hash_password(text, cost). Returns the hash, with a new random salt; or nil and a text, if the
 * password has a zero byte or libcrypt has no bcrypt. Raises if the cost is not from 4 to 31. bcrypt uses only the
 * first 72 bytes of the text. */
int kw_bind_hash_password(lua_State *L);

#endif
