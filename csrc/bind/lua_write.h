/* SPDX-License-Identifier: MIT
 *
 * lua_write: writes that may take several turns, see lua/keywatch/store/turns.lua. Their kinds are "delete", "txn" and
 * "lease_revoke". For each kind there are these methods:
 *
 *   store:delete(...)         does all in one piece, after the long write that is under way
 *   store:try_delete(...)     -> as store:delete(...); or false if the store is busy, or if the call needs more than
 *                             the work of a turn; and true if the call only reads
 *   store:try_read_delete(...)  the same for a call that has to wait: false, false unless it only reads
 *   store:begin_delete(...)   -> a write, which the steps of the store continue; or nil and an error; or false if
 *                             the store is busy and the call does not only read
 *
 *   store:take(write, is_whole)
 *                             -> the results of the method; or false: the write has not ended; or false, true: the call
 *                             only reads, and its revision was compacted. If the call only reads, does one turn of the
 *                             read, with is_whole all of it. A write that a close of the store has ended fails with
 *                             the code "closed"
 *   write:has_ended()         -> true if the write has ended or only reads, or the store is closed
 *
 * Writes that have to wait are numbered together with the requests of clients, see kw_store_take_number:
 *
 *   store:take_number()         -> a number
 *   store:must_wait(number)     -> true if the store is busy, or a request of a client waits that has a lower number.
 *                               Without a number any request that waits counts
 *   store:prepare(number)       does one step of the work that is due, with which the next method would begin; that
 *                               method begins without it, unless time has passed. Then returns what must_wait returns:
 *                               the step may have begun a long write, the expiry of a lease with many keys
 *   store:set_first_task(number)
 *                               the lowest number of a task that waits; nil: none waits
 *
 * must_wait and prepare return false for a value that is not a store: the method that follows refuses it. A closed
 * store lets no caller wait. A write that has begun runs to its end, even if its object is collected: then it is
 * committed, and its result is dropped.
 */
#ifndef KW_BIND_LUA_WRITE_H
#define KW_BIND_LUA_WRITE_H

#include "face/compat.h"

/* Adds the methods of all kinds to the table of a store's methods at the index `methods`. Their upvalues are those of
 * kw_bind_push_upvalues, with the value at index `push`, and their kind. */
void kw_bind_add_write_calls(lua_State *L, int methods, int push);

/* Creates the class of writes. */
void kw_bind_add_write_class(lua_State *L);

#endif
