/* SPDX-License-Identifier: MIT
 *
 * lua_client: the connection of a client as a Lua object.
 */
#ifndef KW_BIND_LUA_CLIENT_H
#define KW_BIND_LUA_CLIENT_H

#include "base/common.h"
#include "face/compat.h"
#include "face/engine.h"

/* Pushes a function: core.client(authority, options, now). */
void kw_bind_push_client(lua_State *L);

/* The object's client at a stack index, which raises if it is closed. */
kw_client *kw_bind_check_client(lua_State *L, int arg);

/* For the engine: how drivers move the bytes of clients. */
extern const kw_peer_face kw_bind_dialed_face;
kw_client *kw_bind_client_of(void *object);

#endif
