/* SPDX-License-Identifier: MIT
 *
 * lua_subscription: a watch of a client as a Lua object, beneath the one that users see.
 */
#ifndef KW_BIND_LUA_SUBSCRIPTION_H
#define KW_BIND_LUA_SUBSCRIPTION_H

#include "base/common.h"
#include "face/compat.h"

/* Pushes a function: core.subscription(self, key, options) -> subscription, tag. */
void kw_bind_push_subscription(lua_State *L);

#endif
