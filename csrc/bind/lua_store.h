/* SPDX-License-Identifier: MIT
 *
 * lua_store: a store as a Lua object.
 *
 * This header is private to the files that give the object its methods:
 *
 *   lua_store         opening, reading and writing keys; the tables of methods
 *   lua_read          ranges that are read in several turns
 *   lua_texts         ranges of objects as one JSON text
 *   lua_result        the results of a method: its values, its error, its ticket
 *   lua_object        finding the store in the arguments; closing
 *   lua_step          time, and the work that is due
 *   lua_lease         leases
 *   lua_maintenance   compaction, status, alarms, hash, defragmentation
 *   lua_rows          rows: the tables of users and roles
 *   lua_durability    tickets and their outcome; the bell that wakes the loop
 *   lua_replica       loading a replica, and adding events to it
 *   lua_content       the content of a replica in a file
 *   lua_watch         watches
 *   lua_snapshot      snapshots
 *   lua_write         writes that take several turns
 *
 * face/module.h has the rule of finalizers. After a finalizer may have run, a method calls kw_bind_check_open again.
 * While an answer that borrows from the store is pushed, the store `is_busy`.
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
  KW_ANSWER_PAGE,  /* the reply to a range; its kvs reuse the tables of the list at index 2 */
  KW_ANSWER_KVS,   /* false, or with `is_last` the reply; adds kvs to the list at index 2 */
  KW_ANSWER_GET,   /* the kv of `reply`, or nil */
  KW_ANSWER_TEXTS, /* the first `n_texts` kvs of `reply`, see lua_texts.h; their text is at index 2 */
  KW_ANSWER_ROWS, /* the keys of the rows whose names begin with `row_name` */
  KW_ANSWER_ROW   /* the bytes of the row `row_name`, or nil */
} kw_answer;

#define KW_NOT_STEPPED INT64_MIN /* a `stepped_at`: the next method has to do its own step */

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
  uint64_t hash_seed;        /* the seed of the hub's hashes, a secret */
  uint64_t last_tag;         /* the tag of the newest watch of this object */
  int64_t stepped_at;     /* when `prepare` did the step for the next method; or KW_NOT_STEPPED */
  kw_lua_server *servers; /* the open servers of this store */

  kw_feed feed;            /* of a replica, see lua_replica */
  bool announces_all;      /* Lua is notified of every moved message, see announce_feed */
  int64_t deadline_before; /* the store's deadline before the feed changed the store */

  /* The answer that is being pushed. It borrows from the store. */
  bool is_busy;    /* an answer is being pushed */
  bool must_close; /* a finalizer has called close: the store is closed after the push */
  kw_answer answer;
  kw_op op;
  kw_reply reply;
  size_t n_texts; /* KW_ANSWER_TEXTS: the objects in the text */
  size_t first;   /* KW_ANSWER_KVS: the number of kvs that the list already has */
  bool is_last;   /* KW_ANSWER_KVS: these are the last kvs of the range */
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

/* Creates the class of the reads that open_leases and describe_lease return. */
void kw_bind_add_lease_class(lua_State *L);

/* Functions for keywatch itself, whose first argument is a store: of its manual clock, of the file of a replica's
 * content, of replicas, and of texts of objects. They are not methods. */
extern const luaL_Reg kw_bind_clock_methods[];
extern const luaL_Reg kw_bind_content_methods[];
extern const luaL_Reg kw_bind_replica_methods[];
extern const luaL_Reg kw_bind_text_methods[];

/* Pushes the answer of the kind KW_ANSWER_TEXTS. */
void kw_bind_push_texts(lua_State *L, const kw_lua_store *self);

/* The methods that only durable stores have. */
extern const luaL_Reg kw_bind_durability_methods[];

/* }====== */

/* {====== Checks at the start of a method ====== */

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
 * closed, busy, or inherited by a fork. Called by a method: needs the upvalues of bind/lua_reply.h. */
kw_lua_store *kw_bind_check_open(lua_State *L);

/* Does what kw_bind_check_open does, and then one step of the work that is due. Most methods begin with this function.
 * Defined in lua_step.c. */
kw_lua_store *kw_bind_enter(lua_State *L);

/* Does what kw_bind_enter does. Raises if the store is not a replica. Defined in lua_replica.c. */
kw_lua_store *kw_bind_enter_replica(lua_State *L);

/* Raises if the store is busy. The caller is then a finalizer that has interrupted another call. */
void kw_bind_check_idle(lua_State *L, const kw_lua_store *self);

/* Creates the hub of the store, unless it has one. Returns KW_OK or KW_ERR_NO_MEMORY. */
int kw_bind_make_hub(kw_lua_store *self);

/* Closes the store with its servers and its hub, and drops its arena. Closing a closed store does nothing. */
void kw_bind_close_store(lua_State *L, kw_lua_store *self);

/* }====== */

#endif
