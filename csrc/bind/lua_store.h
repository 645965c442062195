/* SPDX-License-Identifier: MIT
 *
 * lua_store: the store as a Lua object.
 */
#ifndef KW_BIND_LUA_STORE_H
#define KW_BIND_LUA_STORE_H

#include "base/common.h"
#include "face/compat.h"
#include "watch/hub.h"

/* What is being answered. */
typedef enum kw_answer {
  KW_ANSWER_REPLY,
  KW_ANSWER_GET,
  KW_ANSWER_IDS,
  KW_ANSWER_LEASE,
  KW_ANSWER_ROWS,
  KW_ANSWER_ROW
} kw_answer;

typedef struct kw_lua_server kw_lua_server;

typedef struct kw_lua_store {
  kw_store *store; /* NULL: closed */
  kw_hub *hub;     /* NULL until somebody watches */
  kw_ready ready;  /* watches that were armed and have got something */
  kw_arena arena;  /* for the length of a call */
  bool is_manual;  /* time moves by step alone */
  int64_t now;     /* the manual time, milliseconds */
  int64_t progress_ms;
  int64_t max_request_bytes;
  uint64_t last_tag;      /* of the watches of the store */
  kw_lua_server *servers; /* that are open */

  /* While an answer is being made, memory is asked for, and finalizers of the program may run: they may not use the
   * store, which lends the answer what it consists of. */
  bool is_busy;
  bool must_close; /* a finalizer has closed it meanwhile */
  kw_answer answer;
  kw_op op;
  kw_reply reply;
  const int64_t *ids;
  size_t n_ids;
  kw_lease_info lease;
  const kw_rows *rows;
  kw_slice row_name; /* of a state, or what all names of a table begin with */
} kw_lua_store;

/* Pushes `open`, the table of the store's methods, to which others add theirs, and that of what a durable store has in
 * their place. */
void kw_bind_push_store(lua_State *L);

/* The store of an argument, open or not. */
kw_lua_store *kw_bind_to_store(lua_State *L, int arg);

/* The store at 1, which must be open and idle; and the same after a step of what is due, as calls begin. */
kw_lua_store *kw_bind_check_open(lua_State *L);
kw_lua_store *kw_bind_enter(lua_State *L);

/* Raises: the store is in the middle of a call, so whoever is about to use the store is a finalizer; and the same if
 * that is so. */
void kw_bind_refuse_finalizer(lua_State *L);
void kw_bind_check_idle(lua_State *L, const kw_lua_store *self);

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
