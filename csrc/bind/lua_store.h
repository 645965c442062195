/* SPDX-License-Identifier: MIT
 *
 * lua_store: the store as a Lua object.
 */
#ifndef KW_BIND_LUA_STORE_H
#define KW_BIND_LUA_STORE_H

#include "face/compat.h"
#include "watch/hub.h"

typedef struct kw_lua_store {
  kw_store *store; /* NULL: closed */
  kw_hub *hub;     /* NULL until somebody watches */
  kw_arena arena;  /* for the length of a call */
  bool is_manual;  /* time moves by step alone */
  int64_t now;     /* the manual time, milliseconds */
  int64_t progress_ms;
  uint64_t last_tag; /* of the watches of the store */

  kw_op op; /* of the write that is being answered */
  kw_reply reply;
} kw_lua_store;

/* Pushes `open`, and the table of the store's methods, to which others add theirs. */
void kw_bind_push_store(lua_State *L);

/* The store at 1, which must be open, after a step of what is due. */
kw_lua_store *kw_bind_enter(lua_State *L);
void kw_bind_step_if_due(kw_lua_store *self);

/* Does a step of what is due, and tells in how many seconds there is more; false if there is nothing to come, or only
 * when somebody moves the manual clock. */
bool kw_bind_tend(kw_lua_store *self, double *seconds);

/* Pushes nil and an error; returns 2. */
int kw_bind_fail(lua_State *L, const kw_lua_store *self, int rc);

/* What is random enough to differ from store to store; nothing secret. */
uint64_t kw_bind_new_seed(const void *self);

#ifdef KW_PROBE
/* The store of an argument, which must be an open one. */
kw_lua_store *kw_bind_check_store(lua_State *L, int arg);
#endif

#endif
