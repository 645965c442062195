/* SPDX-License-Identifier: MIT
 *
 * binding: the private header of keywatch.tls's Lua binding, one file for each noun:
 *
 *   tls.c           opens the module, publishes face/tls.h     lua_context.c   tls.client, tls.server, contexts
 *   lua_channel.c   channels                                   lua_pair.c      tls.self_sign
 *   lua_options.c   tables of options, failures as results
 *
 * For the rule of finalizers see face/module.h.
 */
#ifndef KW_TLS_BINDING_H
#define KW_TLS_BINDING_H

#include "tls/channel.h"

#include "face/module.h"

/* Returns the context at index i. Raises if it is closed. */
kw_tls_context *kw_tls_check_context(lua_State *L, int i);

/* Pushes a channel object without a channel, which is closed. Returns the pointer to be set to the channel. */
kw_tls_channel **kw_tls_push_channel(lua_State *L);

/* Pushes nil, the text of a failure and the name of its kind. Returns 3. */
int kw_tls_push_failure(lua_State *L, const kw_tls_failure *failure);

#define KW_TLS_MOST_OPTIONS 16 /* limit of options in a list */

/* A field of a table of options. */
typedef struct kw_tls_option {
  const char *name; /* NULL: the end of a list */
  int type;         /* LUA_TSTRING, LUA_TBOOLEAN or LUA_TNUMBER */
  size_t at;        /* offset of its value in `fields`: a kw_slice, bool or double */
} kw_tls_option;

/* Reads the table at index 1 into `fields`. The value of an option that is not given stays unchanged. Leaves the values
 * on the stack: slices point into them. Returns false, and sets *failure to KW_TLS_OPTION, if the table has another
 * field, a value of another type, or an empty string or one with a zero byte. */
bool kw_tls_read_options(lua_State *L, const kw_tls_option *options, void *fields,
                         kw_tls_failure *failure);

/* Each of these adds its functions to the module on top of the stack, and makes its class. */
void kw_tls_add_contexts(lua_State *L);
void kw_tls_add_channels(lua_State *L);
void kw_tls_add_pairs(lua_State *L);

/* Returns the channel at index 1. Raises if it is closed. */
kw_tls_channel *kw_tls_check_channel(lua_State *L);

#endif
