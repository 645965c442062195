/* SPDX-License-Identifier: MIT
 *
 * lua_peer: what connections whose bytes are moved from Lua have in common.
 */
#ifndef KW_BIND_LUA_PEER_H
#define KW_BIND_LUA_PEER_H

#include <sys/uio.h>

#include "base/blob.h"
#include "face/compat.h"

/* Milliseconds of CLOCK_MONOTONIC; and the argument, in seconds, of those who have a clock of their own. */
int64_t kw_bind_clock_ms(void);
int64_t kw_bind_opt_now(lua_State *L, int arg);

/* Pushes a deadline in seconds; returns how many values: none for INT64_MAX. */
int kw_bind_push_deadline(lua_State *L, int64_t when);

/* Bytes that are to become a string: pushes an object that holds a blob, so that it is released even if that fails for
 * want of memory; and pushes the string, after which the holder is empty. */
kw_blob **kw_bind_new_holder(lua_State *L);
void kw_bind_push_held(lua_State *L, kw_blob **holder);
void kw_bind_add_holder(lua_State *L);

/* How the bytes of a peer are moved: `peer_of` is the open peer of the object at 1, or raises; the others are as in
 * face/engine.h. */
typedef struct kw_peer_bytes {
  void *(*peer_of)(lua_State *L);
  size_t (*pending)(void *peer, struct iovec *pieces, size_t max);
  void (*wrote)(void *peer, size_t bytes);
} kw_peer_bytes;

/* Pushes what is pending as one string, at most as many bytes as the argument says, and counts it as written. */
int kw_bind_push_pending(lua_State *L, int arg, const kw_peer_bytes *bytes);

#endif
