/* SPDX-License-Identifier: MIT
 *
 * lua_password: hashes passwords with bcrypt, by the system's libcrypt. bcrypt is slow on purpose: at etcd's cost,
 * 10, it takes about 50 ms. The class keywatch.core.hashing is a hash that is made by a thread of its own.
 *
 * The thread and the object share one block of memory, which the last of them frees: an abandoned hashing is closed
 * at once, and its thread ends by itself. After a fork the child's copy has no thread, and fails.
 */
#ifndef KW_BIND_LUA_PASSWORD_H
#define KW_BIND_LUA_PASSWORD_H

#include "face/compat.h"

/* The function core.hash_password(text, cost). Returns the hash, with a new random salt; or nil and a text, if the
 * password has a zero byte or libcrypt has no bcrypt. Raises if the cost is not from 4 to 31. bcrypt uses only the
 * first 72 bytes of the text. */
int kw_bind_hash_password(lua_State *L);

/* Creates the class, and pushes the function core.begin_hash(text, cost), whose arguments are those of hash_password.
 * Returns a hashing; or nil and a text, if the password has a zero byte, memory is short, or no thread can be started.
 *
 *   hashing:result()  -> the hash, nil while the thread works, or false and a text
 *   hashing:close()   gives the hash up
 */
void kw_bind_push_begin_hash(lua_State *L);

#endif
