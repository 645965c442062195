/* SPDX-License-Identifier: MIT
 *
 * lua_result: how a method of a store ends.
 *
 * A method returns its value, or nil and an error. A method that may have changed the store, or that has seen a
 * change which is not durable yet, returns a ticket as its third value. Its caller waits until the ticket is
 * settled before it passes the other values on. Without a third value there is nothing to wait for.
 *
 * These functions are called by methods of a store, which have the upvalues of bind/lua_reply.h.
 */
#ifndef KW_BIND_LUA_RESULT_H
#define KW_BIND_LUA_RESULT_H

#include "bind/lua_store.h"

/* Copies the sentence that says why the storage has failed; "" if it has not, or if the store could not be opened. */
void kw_bind_copy_failure(const kw_lua_store *self, char text[KW_REASON_ROOM]);

/* {====== Methods that end without a ticket ====== */

/* Pushes nil and the error of `rc`; returns 2. The error of a compacted revision has `compact_revision`: for that one
 * the store must be open. The message of a failed storage says why it has failed. */
int kw_bind_fail(lua_State *L, const kw_lua_store *self, int rc);

/* Pushes true if `rc` is KW_OK, else nil and the error. Returns how many values. */
int kw_bind_end(lua_State *L, const kw_lua_store *self, int rc);

/* }====== */

/* {====== Methods that end with a ticket ====== */

/* Returns the ticket of all that the method has seen or changed; 0 if everything is durable. Finalizers may close the
 * store during a push: ask for the ticket before. */
uint64_t kw_bind_open_ticket(const kw_lua_store *self);

/* Ends a method that has pushed a value (`values` is 1) or nil and an error (2). Adds the ticket as the third value,
 * unless the ticket is 0. Returns how many values. */
int kw_bind_give(lua_State *L, uint64_t ticket, int values);

/* Pushes nil, the error and the ticket. Returns how many values. */
int kw_bind_fail_write(lua_State *L, const kw_lua_store *self, int rc);

/* Pushes true if `rc` is KW_OK, else nil and the error; and the ticket. Returns how many values. */
int kw_bind_end_write(lua_State *L, const kw_lua_store *self, int rc);

/* Sets the revision of the table on top of the stack to the store's newest, and adds the ticket. Returns how many
 * values. Allocates nothing if the table is one of kw_bind_push_revision. */
int kw_bind_give_revision(lua_State *L, const kw_lua_store *self);

/* }====== */

/* {====== Methods whose answer borrows from the store ====== */

/* If `rc` is KW_OK, pushes an answer of kind `kind`, which the caller has put into the fields of `self`; else nil and
 * the error. Adds the ticket, unless the method was a plain read, which sees only durable changes. Returns how many
 * values. Needs 4 free places on the stack.
 *
 * A write is committed after its answer is pushed. If the answer cannot be pushed, the write is rolled back, and the
 * error is raised. If a finalizer closes the store during the push, the store is closed at the end. */
int kw_bind_answer(lua_State *L, kw_lua_store *self, int rc, kw_answer kind);

/* The function that kw_bind_answer calls protected, the upvalue KW_UP_PUSH. It pushes the answer of the store at
 * index 1. The key of a get is at index 2. */
int kw_bind_push_answer(lua_State *L);

/* }====== */

#endif
