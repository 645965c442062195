/* SPDX-License-Identifier: MIT
 *
 * binding: the private header of keywatch.tls's Lua binding, one file for each noun:
 *
 *   tls.c           opens the module, publishes face/tls.h     lua_context.c   tls.client, tls.server, contexts
 *   lua_channel.c   channels                                   lua_pair.c      tls.self_sign
 *
 * Every Lua function that asks Lua for memory may run finalizers, and a finalizer may close any object. So a function
 * of the binding first makes the Lua objects that it needs, and only then looks at its own object.
 */
#ifndef KW_TLS_BINDING_H
#define KW_TLS_BINDING_H

#include "tls/channel.h"

#include "face/module.h"

/* Returns the context at index i. Raises if it is closed. */
kw_tls_context *kw_tls_check_context(lua_State *L, int i);

/* Pushes a channel object without a channel. Returns where the channel is to be put; NULL means closed. */
kw_tls_channel **kw_tls_push_channel(lua_State *L);

/* Pushes nil, the text of a failure and the name of its kind. Returns 3. */
int kw_tls_push_failure(lua_State *L, const kw_tls_failure *failure);

/* Reads the fields of the table at index 1, which are named in `names`, a list that ends with NULL. Pushes their
 * values in that order, nil for those that are not there. Raises if the table has another field. */
void kw_tls_push_options(lua_State *L, const char *const *names);

/* Returns the string at index i, an empty slice for nil; raises for another type. `name` is that of the option. */
kw_slice kw_tls_check_text(lua_State *L, int i, const char *name);

/* Returns the boolean at index i, `otherwise` for nil; raises for another type. */
bool kw_tls_check_flag(lua_State *L, int i, const char *name, bool otherwise);

/* Each of these adds its functions to the module on top of the stack, and makes its class. */
void kw_tls_add_contexts(lua_State *L);
void kw_tls_add_channels(lua_State *L);
void kw_tls_add_pairs(lua_State *L);

/* Returns the channel at index 1. Raises if it is closed. */
kw_tls_channel *kw_tls_check_channel(lua_State *L);

#endif
