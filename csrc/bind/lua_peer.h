/* SPDX-License-Identifier: MIT
 *
 * lua_peer: functions that the bindings of connections share: the clock, deadlines, pending bytes, and blobs that
 * become strings.
 */
#ifndef KW_BIND_LUA_PEER_H
#define KW_BIND_LUA_PEER_H

#include "base/blob.h"
#include "face/engine.h"
#include "face/compat.h"

/* Returns CLOCK_MONOTONIC in milliseconds. */
int64_t kw_bind_clock_ms(void);

/* Returns argument `arg`, a time of the caller's clock in seconds, in milliseconds, rounded down. Without the argument,
 * returns CLOCK_MONOTONIC. */
int64_t kw_bind_opt_now(lua_State *L, int arg);

/* Pushes a deadline, given in milliseconds, as seconds. Returns the number of pushed values: 1, or 0 for INT64_MAX. */
int kw_bind_push_deadline(lua_State *L, int64_t when);

/* Creates the class of holders. Must be called once per VM, before kw_bind_new_holder. */
void kw_bind_add_holder(lua_State *L);

/* Pushes an empty holder, a userdata that owns a reference to a blob, and returns the address where the caller puts
 * the reference. The holder releases the blob even if Lua runs out of memory while the blob is pushed as a string. May
 * run finalizers. */
kw_blob **kw_bind_new_holder(lua_State *L);

/* Pushes the bytes of the holder's blob as a string, or "" if the holder is empty. Releases the blob: the holder is
 * empty then. */
void kw_bind_push_held(lua_State *L, kw_blob **holder);

/* Pushes the pending bytes as one string, and counts them as written. Argument `arg` is the most bytes to push;
 * without it, all are pushed. `peer_of` returns the open peer of the object at index 1, or raises. Returns 1. */
int kw_bind_push_pending(lua_State *L, int arg, void *(*peer_of)(lua_State *L),
                         const kw_peer_face *face);

#endif
