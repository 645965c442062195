/* SPDX-License-Identifier: MIT
 *
 * lua_password: hashes passwords with bcrypt, by the system's libcrypt. bcrypt is slow on purpose: at etcd's cost,
 * 10, it takes about 50 ms. The class keywatch.core.hashing is a hash that a separate thread makes.
 *
 * The thread and the object share one block of memory, which is freed by the last of them: closing a hashing does not
 * wait for its thread. After a fork the child's copy has no thread, and fails.
 */
#ifndef KW_BIND_LUA_PASSWORD_H
#define KW_BIND_LUA_PASSWORD_H

#include "face/compat.h"

/* The function core.hash_password(text, cost). Returns the hash, with a new random salt; or nil and a text, if the
 * password has a zero byte, libcrypt has no bcrypt, or memory is short. Raises if the cost is not from 4 to 31. bcrypt
 * uses only the first 72 bytes of the text. */
int kw_bind_hash_password(lua_State *L);

/* Creates the class, and pushes the function core.begin_hash(text, cost), whose arguments are those of hash_password.
 * Returns a hashing; or nil and a text, if the password has a zero byte, memory is short, or no thread can be started.
 *
 *   hashing:result()  -> the hash, nil while the thread works, or false and a text
 *   hashing:close()   abandons the hash
 */
void kw_bind_push_begin_hash(lua_State *L);

#endif
