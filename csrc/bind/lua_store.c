/* SPDX-License-Identifier: MIT */
#include "bind/lua_store.h"

#include "bind/lua_error.h"
#include "bind/lua_op.h"
#include "bind/lua_options.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_step.h"
#include "bind/lua_write.h"

#define MIN_PROGRESS_MS 100  /* etcd's */
#define MAX_HISTORY_AGE 1e10 /* seconds: a longer one means no limit */

/* {====== Keys and values ====== */

/* Applies the op of the store and answers it. `rc` is the result of reading the op. */
static int apply(lua_State *L, kw_lua_store *self, int rc, kw_answer kind) {
  luaL_checkstack(L, 4, "answer");
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  rc = kw_store_apply(self->store, &self->op, &self->arena, &self->reply);
  return kw_bind_answer(L, self, rc, kind);
}

static int l_get(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_get_op(L, &self->arena, &self->op, NULL), KW_ANSWER_GET);
}

static int l_range(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_range_op(L, &self->arena, &self->op, NULL), KW_ANSWER_REPLY);
}

static int l_put(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return apply(L, self, kw_bind_read_put_op(L, &self->op, NULL), KW_ANSWER_REPLY);
}

/* }====== */

/* {====== Opening and closing ====== */

typedef struct open_fields {
  kw_store_options options;
  kw_slice path;
  kw_seconds now;
  kw_seconds history_age;
  kw_seconds progress_interval;
  int64_t seed; /* negative: none is given */
} open_fields;

#define OPEN_OPTION(name, kind, field)                                                             \
  { #name, KW_OPTION_##kind, offsetof(open_fields, options.field), NULL }

static const kw_option open_options[] = {
    OPEN_OPTION(max_request_bytes, COUNT, max_request_bytes),
    OPEN_OPTION(max_txn_ops, COUNT, max_txn_ops),
    OPEN_OPTION(quota_backend_bytes, INT, quota),
    OPEN_OPTION(min_lease_ttl, COUNT, min_lease_ttl),
    OPEN_OPTION(step_records, COUNT, step_records),
    OPEN_OPTION(journal_segment_bytes, COUNT, journal_segment_bytes),
    OPEN_OPTION(replica, BOOL, replica),
    OPEN_OPTION(threads, BOOL, has_threads),
    OPEN_OPTION(history_bytes, COUNT, history_bytes),
    OPEN_OPTION(history_idle_bytes, COUNT, history_idle_bytes),
    OPEN_OPTION(history_revisions, COUNT, history_revisions),
    {"history_age", KW_OPTION_SECONDS, offsetof(open_fields, history_age), NULL},
    {"path", KW_OPTION_BYTES, offsetof(open_fields, path), NULL},
    {"now", KW_OPTION_SECONDS, offsetof(open_fields, now), NULL},
    {"progress_interval", KW_OPTION_SECONDS, offsetof(open_fields, progress_interval), NULL},
    {"seed", KW_OPTION_COUNT, offsetof(open_fields, seed), NULL},
    KW_END_OF_OPTIONS};

/* Sets the limit on the age of history. Raises if it is negative. */
static void read_history_age(lua_State *L, open_fields *fields) {
  double seconds = fields->history_age.value;
  if (!fields->history_age.is_given) return;
  if (seconds < 0) luaL_error(L, "open: option 'history_age' must not be negative");
  if (seconds < MAX_HISTORY_AGE) fields->options.history_age_ms = (int64_t)(seconds * 1000);
}

/* Reads the options at index 1. Raises if they cannot be used together. */
static open_fields read_open_options(lua_State *L) {
  open_fields fields = {.options = kw_store_defaults(), .seed = -1};
  kw_bind_read_options(L, 1, "open", open_options, &fields);
  if (fields.path.len > 0 && memchr(fields.path.data, 0, fields.path.len) != NULL)
    luaL_error(L, "open: option 'path' must not contain a zero byte");
  if (fields.options.replica && fields.path.data != NULL)
    luaL_error(L, "open: a replica lives in memory: leave the option 'path' out");
  if (fields.options.step_records == 0)
    luaL_error(L, "open: option 'step_records' must be at least 1");
  if (fields.options.journal_segment_bytes < KW_MIN_JOURNAL_SEGMENT_BYTES ||
      fields.options.journal_segment_bytes > KW_MAX_JOURNAL_SEGMENT_BYTES)
    luaL_error(L, "open: option 'journal_segment_bytes' must be from %d to %d",
               KW_MIN_JOURNAL_SEGMENT_BYTES, KW_MAX_JOURNAL_SEGMENT_BYTES);
  if (fields.options.min_lease_ttl > KW_LEASE_MAX_TTL)
    luaL_error(L, "open: option 'min_lease_ttl' is too large");
  read_history_age(L, &fields);
  return fields;
}

static int64_t progress_ms_of(lua_State *L, const open_fields *fields) {
  int64_t ms = KW_DEFAULT_PROGRESS_MS;
  if (fields->progress_interval.is_given)
    ms = kw_bind_to_ms(L, "open: option 'progress_interval'", fields->progress_interval.value);
  return ms < MIN_PROGRESS_MS ? MIN_PROGRESS_MS : ms;
}

/* Pushes a closed store. */
static kw_lua_store *push_closed(lua_State *L, const open_fields *fields) {
  int64_t now =
      fields->now.is_given ? kw_bind_to_ms(L, "open: option 'now'", fields->now.value) : 0;
  int64_t progress_ms = progress_ms_of(L, fields);
  bool is_durable = fields->path.data != NULL;
  if (is_durable) kw_bind_push_field(L, 1, "path"); /* finalizers may empty the options */
  kw_lua_store *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (kw_lua_store){.is_manual = fields->now.is_given,
                         .now = now,
                         .stepped_at = KW_NOT_STEPPED,
                         .progress_ms = progress_ms,
                         .max_request_bytes = fields->options.max_request_bytes};
  lua_pushvalue(L, lua_upvalueindex(is_durable ? KW_UP_DURABLE_META : KW_UP_STORE_META));
  lua_setmetatable(L, -2);
  return self;
}

static int l_open(lua_State *L) {
  char text[KW_REASON_ROOM] = "";
  open_fields fields = read_open_options(L);
  fields.options.seed = fields.seed < 0 ? kw_bind_seed(L, -1) : (uint64_t)fields.seed;
  fields.options.hash_seed = kw_bind_seed(L, fields.seed);
  kw_lua_store *self = push_closed(L, &fields);
  self->hash_seed = fields.options.hash_seed;
  fields.options.path = (const char *)fields.path.data; /* Lua's strings end with a 0 */
  int rc = kw_store_open(&fields.options, kw_bind_now(self), &self->store, text);
  if (rc == KW_OK) return 1;
  kw_bind_fail(L, self, rc);
  kw_bind_set_message(L, text);
  return 2;
}

/* If a finalizer calls this while an answer is being pushed, the store is closed after the push. */
static int l_close(lua_State *L) {
  kw_lua_store *self = kw_bind_check_self(L);
  if (self->is_busy) {
    self->must_close = true;
  } else {
    kw_bind_close_store(L, self);
  }
  return 0;
}

static int l_tostring(lua_State *L) {
  const kw_lua_store *self = kw_bind_check_self(L);
  if (self->store == NULL) {
    lua_pushliteral(L, KW_STORE_NAME "<closed>");
    return 1;
  }
  kw_store_status status = kw_store_get_status(self->store);
  lua_pushliteral(L, KW_STORE_NAME "<revision=");
  kw_bind_push_int(L, status.revision);
  lua_pushliteral(L, " keys=");
  kw_bind_push_int(L, status.keys);
  lua_pushliteral(L, ">");
  lua_concat(L, 5);
  return 1;
}

/* }====== */

/* {====== The tables of methods ====== */

static const luaL_Reg key_methods[] = {
    {"get", l_get}, {"range", l_range}, {"put", l_put}, {"close", l_close}, {NULL, NULL}};

static const luaL_Reg *const store_methods[] = {
    key_methods,          kw_bind_read_methods, kw_bind_lease_methods, kw_bind_maintenance_methods,
    kw_bind_row_methods,  kw_bind_step_methods, kw_bind_watch_methods, kw_bind_snapshot_methods,
    kw_bind_write_methods};

static const luaL_Reg store_meta[] = {
    {"__gc", l_close}, {"__close", l_close}, {"__tostring", l_tostring}, {NULL, NULL}};

static void push_metatable(lua_State *L, const char *name, int methods) {
  luaL_newmetatable(L, name);
  lua_pushliteral(L, KW_STORE_NAME);
  lua_setfield(L, -2, "__name");
  lua_pushvalue(L, methods);
  lua_setfield(L, -2, "__index");
}

/* Adds functions to the table at `table`. The function that pushes answers is at `push`. */
static void add_functions(lua_State *L, int table, const luaL_Reg *functions, int push) {
  lua_pushvalue(L, table);
  kw_bind_push_upvalues(L, push);
  luaL_setfuncs(L, functions, KW_UP_COUNT);
  lua_pop(L, 1);
}

/* Pushes the table of a durable store's methods, which falls back to the methods of every store. */
static void push_durable_methods(lua_State *L, int methods) {
  lua_newtable(L);
  lua_newtable(L);
  lua_pushvalue(L, methods);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

void kw_bind_push_store(lua_State *L) {
  int base = lua_gettop(L), open = base + 1, methods = base + 2, durable = base + 3;
  int inner = base + 4, meta = base + 5, durable_meta = base + 6, push = base + 7;
  luaL_checkstack(L, 12, KW_STORE_NAME);
  lua_pushnil(L);
  lua_newtable(L);
  push_durable_methods(L, methods);
  lua_newtable(L);
  push_metatable(L, KW_STORE_NAME, methods);
  push_metatable(L, KW_DURABLE_NAME, durable);
  kw_bind_push_upvalues(L, 0);
  lua_pushcclosure(L, kw_bind_push_answer, KW_UP_COUNT);

  add_functions(L, meta, store_meta, push);
  add_functions(L, durable_meta, store_meta, push);
  add_functions(L, durable, kw_bind_durability_methods, push);
  add_functions(L, inner, kw_bind_clock_methods, push);
  add_functions(L, inner, kw_bind_replica_methods, push);
  add_functions(L, inner, kw_bind_content_methods, push);
  add_functions(L, inner, kw_bind_text_methods, push);
  for (size_t i = 0; i < KW_LENGTH(store_methods); i++)
    add_functions(L, methods, store_methods[i], push);
  kw_bind_add_write_calls(L, methods, push);
  kw_bind_push_upvalues(L, push);
  lua_pushcclosure(L, l_open, KW_UP_COUNT);
  lua_replace(L, open);
  lua_settop(L, inner);
}

/* }====== */
