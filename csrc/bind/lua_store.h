/* SPDX-License-Identifier: MIT
 *
 * lua_store: a store as a Lua object.
 *
 * This header is private to the files that give the object its methods:
 *
 *   lua_store         opening, reading and writing keys; the tables of methods
 *   lua_read          ranges that are read in several turns
 *   lua_result        how a method ends: its values, its error, its ticket
 *   lua_object        how a method finds its store; closing
 *   lua_step          time, and the work that is due
 *   lua_lease         leases
 *   lua_maintenance   compaction, status, alarms, hash, defragmentation
 *   lua_rows          rows
 *   lua_durability    tickets and their outcome; the bell
 *   lua_replica       how a replica is filled, and fed
 *   lua_content       the content of a replica in a file
 *   lua_watch         watches
 *   lua_snapshot      snapshots
 *   lua_write         writes that take several turns
 *
 * The rule of finalizers is in face/module.h. A method looks at its store again by kw_bind_check_open. While an answer
 * that borrows from the store is pushed, the store `is_busy`.
 */
#ifndef KW_BIND_LUA_STORE_H
#define KW_BIND_LUA_STORE_H

#include "base/common.h"
#include "face/compat.h"
#include "rpc/feed.h"
#include "watch/hub.h"

/* The kinds of answers that borrow from the store. */
typedef enum kw_answer {
  KW_ANSWER_REPLY, /* `reply`, the reply to `op` */
  KW_ANSWER_PAGE, /* as KW_ANSWER_REPLY, of a range; the tables of the list at index 2 are used again */
  KW_ANSWER_KVS, /* false, after the kvs of `reply` were added to the list at index 2; or `reply`, with that list */
  KW_ANSWER_GET,  /* the kv of `reply`, or nil */
  KW_ANSWER_ROWS, /* the keys of the rows whose names begin with `row_name` */
  KW_ANSWER_ROW   /* the bytes of the row `row_name`, or nil */
} kw_answer;

#define KW_NOT_STEPPED INT64_MIN /* `stepped_at`: the next method begins with its step */

typedef struct kw_lua_server kw_lua_server;

typedef struct kw_lua_store {
  kw_store *store;           /* NULL: closed */
  kw_hub *hub;               /* NULL until the first watch or server */
  kw_ready ready;            /* armed watches that have received something */
  kw_arena arena;            /* memory of one call, reset at the start of the next */
  bool is_manual;            /* the store has a manual clock, which only `step` moves */
  int64_t now;               /* the time of the manual clock, in milliseconds */
  int64_t progress_ms;       /* the interval between two progress notifications */
  int64_t max_request_bytes; /* the limit on one request */
  uint64_t hash_seed;        /* of the hub */
  uint64_t last_tag;         /* the tag of the newest watch of this object */
  int64_t stepped_at;     /* when `prepare` of lua_write.h has made the step of the next method */
  kw_lua_server *servers; /* the open servers of this store */

  kw_feed feed;          /* of a replica, see lua_replica */
  bool is_followed;      /* Lua is notified of everything that the feed brings */
  int64_t deadline_then; /* of the store, before the feed has changed it */

  /* The answer that is being pushed. It borrows from the store. */
  bool is_busy;    /* an answer is being pushed */
  bool must_close; /* a finalizer has closed the store in the meantime */
  kw_answer answer;
  kw_op op;
  kw_reply reply;
  size_t first; /* of KW_ANSWER_KVS: the kvs that the list has already */
  bool is_last; /* and no kvs will follow */
  const kw_rows *rows;
  kw_slice row_name; /* the name of a row, or the prefix of all names of a table */
} kw_lua_store;

/* {====== Methods ====== */

/* Pushes four values: the function `open`, the table of a store's methods, the table of the methods that a durable
 * store has in addition, and the table of the functions that only keywatch calls with a store. */
void kw_bind_push_store(lua_State *L);

/* The methods of every store, one list per file. Their upvalues are those of kw_bind_push_upvalues. */
extern const luaL_Reg kw_bind_lease_methods[];
extern const luaL_Reg kw_bind_maintenance_methods[];
extern const luaL_Reg kw_bind_read_methods[];
extern const luaL_Reg kw_bind_row_methods[];
extern const luaL_Reg kw_bind_snapshot_methods[];
extern const luaL_Reg kw_bind_step_methods[];
extern const luaL_Reg kw_bind_watch_methods[];
extern const luaL_Reg kw_bind_write_methods[];

/* Makes the class of the reads that lua_lease opens. */
void kw_bind_add_lease_class(lua_State *L);

/* Functions with a store as their first argument, which are no methods: of its manual clock, and of replicas. */
extern const luaL_Reg kw_bind_clock_methods[];
extern const luaL_Reg kw_bind_content_methods[];
extern const luaL_Reg kw_bind_replica_methods[];

/* The methods of durable stores alone. */
extern const luaL_Reg kw_bind_durability_methods[];

/* }====== */

/* {====== The way into a method ====== */

/* Returns the store at stack index `arg`, open or closed. Raises if the value there is not a store. */
kw_lua_store *kw_bind_to_store(lua_State *L, int arg);

/* Returns the store at index 1, open or closed, or NULL if the value there is not a store. Called by a method: needs
 * the upvalues of bind/lua_reply.h, and takes less time than kw_bind_to_store. */
kw_lua_store *kw_bind_find_store(lua_State *L);

/* Does what kw_bind_find_store does. Raises if the value is not a store. */
kw_lua_store *kw_bind_check_self(lua_State *L);

/* Raises if an open store is inherited by a fork: its files and its threads are the parent's. */
void kw_bind_check_process(lua_State *L, const kw_lua_store *self);

/* Returns the store at index 1 and resets its arena. Raises if the value there is not a store, or if the store is
 * closed, busy, or that of the parent process. Called by a method: needs the upvalues of bind/lua_reply.h. */
kw_lua_store *kw_bind_check_open(lua_State *L);

/* Does what kw_bind_check_open does, and then one step of the work that is due. Most methods begin with this function.
 * Defined in lua_step.c. */
kw_lua_store *kw_bind_enter(lua_State *L);

/* Does what kw_bind_enter does. Raises if the store is not a replica. Defined in lua_replica.c. */
kw_lua_store *kw_bind_enter_replica(lua_State *L);

/* Raises if the store is in the middle of a call: the caller is then a finalizer. */
void kw_bind_check_idle(lua_State *L, const kw_lua_store *self);

/* Makes the hub of the store, unless it has one. Returns KW_OK or KW_ERR_NO_MEMORY. */
int kw_bind_make_hub(kw_lua_store *self);

/* Closes the store with its servers and its hub, and drops its arena. Closing a closed store does nothing. */
void kw_bind_close_store(lua_State *L, kw_lua_store *self);

/* }====== */

#endif
