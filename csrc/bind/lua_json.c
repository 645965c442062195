/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "bind/lua_json.h"

#include "base/decimal.h"
#include "bind/lua_error.h"
#include "bind/lua_json_call.h"
#include "bind/lua_options.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/json.h"
#include "model/error.h"

int kw_bind_json_fail(lua_State *L, int rc, const char *message) {
  lua_settop(L, KW_JSON_SCRATCH_AT);
  kw_bind_return_scratch(L, KW_JSON_SCRATCH, KW_JSON_SCRATCH_AT);
  kw_bind_push_failure(L, lua_upvalueindex(KW_JSON_ERROR), rc);
  if (rc != KW_ERR_NO_MEMORY) kw_bind_set_message(L, message);
  return 2;
}

void kw_bind_json_check_range(lua_State *L, const char *what, const char *option, int64_t v,
                              int min, int max) {
  if (v >= min && v <= max) return;
  luaL_error(L, "%s: option '%s' must be from %d to %d", what, option, min, max);
}

/* Elements of an array are counted by an int. */
void kw_bind_json_check_limits(lua_State *L, const char *what, int64_t depth, int64_t max_bytes) {
  kw_bind_json_check_range(L, what, "depth", depth, 1, KW_JSON_MAX_DEPTH);
  kw_bind_json_check_range(L, what, "max_bytes", max_bytes, 0, INT_MAX);
}

/* Values wait on the stack until their table can be made with the right size. Inside of this many objects and arrays,
 * no more than WAITING do; in deeper ones 2, since LuaJIT's stack has 8000 values for a function. */
#define WAITING KW_LIMIT(64, 6)
#define WAITING_DEPTH 16
#define STACK_ROOM (WAITING + 8)

enum { BIG_AS_STRING, BIG_AS_NUMBER, BIG_REFUSED };

typedef struct decode_options {
  int64_t depth;
  int64_t max_bytes;
  int integers;
  int duplicates;
  bool is_ordered;
} decode_options;

static const char *const integers_names[] = {"string", "number", "error", NULL};
static const char *const duplicates_names[] = {"last", "error", NULL};

#define OPTION(name, kind, type, field, names)                                                     \
  { name, KW_OPTION_##kind, offsetof(type, field), names }

static const kw_option decode_list[] = {
    OPTION("depth", COUNT, decode_options, depth, NULL),
    OPTION("max_bytes", COUNT, decode_options, max_bytes, NULL),
    OPTION("integers", ENUM, decode_options, integers, integers_names),
    OPTION("duplicates", ENUM, decode_options, duplicates, duplicates_names),
    OPTION("ordered", BOOL, decode_options, is_ordered, NULL),
    KW_END_OF_OPTIONS};

/* An object or array that is being read. */
typedef struct frame {
  int table; /* its stack index; 0: the table is not made yet */
  int first; /* stack index of the first value that waits */
  int n;     /* elements of an array in the table, or names of an object in its order */
} frame;

typedef struct decoder {
  lua_State *L;
  kw_arena *arena;
  uint8_t *room; /* for strings with escapes */
  size_t room_len;
  decode_options options;
  bool is_careful; /* looks at each name before its value is read */
  const char *fault;
  const uint8_t *fault_at;
  int rc;
  kw_json_reader reader;
  frame frames[KW_JSON_MAX_DEPTH + 1]; /* by depth */
} decoder;

static bool refuse(decoder *d, const kw_json_token *token, int rc, const char *fault) {
  d->rc = rc;
  d->fault = fault;
  d->fault_at = token->text.data;
  return false;
}

/* Returns room for the string of a token, or NULL if memory is short. */
static uint8_t *room_for(decoder *d, const kw_json_token *token) {
  size_t len = token->text.len;
  if (len <= d->room_len) return d->room;
  if (len < 2 * d->room_len) len = 2 * d->room_len;
  d->room = kw_arena_alloc(d->arena, len);
  d->room_len = d->room == NULL ? 0 : len;
  return d->room;
}

static bool push_string(decoder *d, const kw_json_token *token) {
  if (!token->has_escapes) {
    kw_bind_push_slice(d->L, token->text);
    return true;
  }
  uint8_t *room = room_for(d, token);
  if (room == NULL) return refuse(d, token, KW_ERR_NO_MEMORY, "");
  lua_pushlstring(d->L, (const char *)room, kw_json_unescape(token, room));
  return true;
}

static bool push_float(decoder *d, const kw_json_token *token) {
  double x;
  if (!kw_decimal_read(token->text, &x)) {
    return refuse(d, token, KW_ERR_OUT_OF_RANGE, "the number is too large");
  }
  lua_pushnumber(d->L, x);
  return true;
}

/* Pushes an integer that a Lua number may not hold. */
static bool push_big(decoder *d, const kw_json_token *token) {
  if (d->options.integers == BIG_AS_NUMBER) return push_float(d, token);
  if (d->options.integers == BIG_REFUSED) {
    return refuse(d, token, KW_ERR_OUT_OF_RANGE, "a Lua number cannot hold the integer");
  }
  kw_bind_push_slice(d->L, token->text);
  return true;
}

static bool push_integer(decoder *d, const kw_json_token *token) {
  int64_t v = token->integer;
  if (!KW_INTEGERS && (v < -KW_JSON_EXACT || v > KW_JSON_EXACT)) return push_big(d, token);
  kw_bind_push_int(d->L, v);
  return true;
}

/* Makes the table of a frame, below the values that wait. */
static void make_table(lua_State *L, frame *f, bool is_object, int n) {
  lua_createtable(L, is_object ? 0 : n, is_object ? n / 2 : 0);
  lua_insert(L, f->first);
  f->table = f->first++;
}

/* Moves the values that wait into the table, in order: the last member of a name counts. */
static void move_values(lua_State *L, frame *f, bool is_object, bool is_last) {
  int n = lua_gettop(L) - f->first + 1;
  if (f->table == 0) make_table(L, f, is_object, is_last ? n : 2 * n);
  if (!is_object) {
    for (int i = n; i > 0; i--) lua_rawseti(L, f->table, f->n + i);
    f->n += n;
    return;
  }
  for (int at = f->first; n > 0; n -= 2, at += 2) {
    lua_pushvalue(L, at);
    lua_pushvalue(L, at + 1);
    lua_rawset(L, f->table);
  }
  lua_settop(L, f->first - 1);
}

static void begin(decoder *d) {
  lua_State *L = d->L;
  bool is_object = kw_json_in_object(&d->reader);
  frame *f = &d->frames[d->reader.depth];
  luaL_checkstack(L, STACK_ROOM, "decode");
  *f = (frame){.first = lua_gettop(L) + 1};
  if (!is_object || !d->is_careful) return;
  make_table(L, f, true, 0);
  if (!d->options.is_ordered) return;
  lua_newtable(L); /* the order */
  f->first++;
}

/* Leaves the table on top of the stack. */
static void end(decoder *d, bool is_object) {
  lua_State *L = d->L;
  frame *f = &d->frames[d->reader.depth + 1];
  move_values(L, f, is_object, true);
  if (!is_object) {
    lua_pushvalue(L, lua_upvalueindex(KW_JSON_MARK));
    lua_setmetatable(L, -2);
  } else if (d->options.is_ordered) {
    lua_pushvalue(L, lua_upvalueindex(KW_JSON_ORDER));
    lua_setmetatable(L, -2);
    lua_setmetatable(L, -2);
  }
}

/* Looks whether the object has the name on top of the stack. */
static bool note_name(decoder *d, const kw_json_token *token) {
  lua_State *L = d->L;
  frame *f = &d->frames[d->reader.depth];
  lua_pushvalue(L, -1);
  lua_rawget(L, f->table);
  bool is_new = lua_isnil(L, -1);
  lua_pop(L, 1);
  if (is_new && d->options.is_ordered) {
    lua_pushvalue(L, -1);
    lua_rawseti(L, f->table + 1, ++f->n);
  }
  if (is_new || d->options.duplicates == 0) return true;
  return refuse(d, token, KW_ERR_MALFORMED, "the object has this name twice");
}

/* Adds the value on top of the stack to its object or array. */
static void add_value(decoder *d) {
  int depth = d->reader.depth;
  frame *f = &d->frames[depth];
  if (depth == 0) return;
  int most = d->is_careful || depth > WAITING_DEPTH ? 2 : WAITING;
  if (lua_gettop(d->L) - f->first + 1 < most) return;
  move_values(d->L, f, kw_json_in_object(&d->reader), false);
}

/* Pushes the value of a token, or a part of it. Returns false after a failure. */
static bool take(decoder *d, kw_json_kind kind, const kw_json_token *token) {
  lua_State *L = d->L;
  bool ok = true;
  switch (kind) {
    case KW_JSON_OBJECT:
    case KW_JSON_ARRAY: begin(d); return true;
    case KW_JSON_NAME: return push_string(d, token) && (!d->is_careful || note_name(d, token));
    case KW_JSON_OBJECT_END: end(d, true); break;
    case KW_JSON_ARRAY_END: end(d, false); break;
    case KW_JSON_STRING: ok = push_string(d, token); break;
    case KW_JSON_INTEGER: ok = push_integer(d, token); break;
    case KW_JSON_BIG: ok = push_big(d, token); break;
    case KW_JSON_FLOAT: ok = push_float(d, token); break;
    case KW_JSON_TRUE: lua_pushboolean(L, 1); break;
    case KW_JSON_FALSE: lua_pushboolean(L, 0); break;
    case KW_JSON_NULL: lua_pushlightuserdata(L, NULL); break;
    case KW_JSON_END:
    case KW_JSON_FAILED: return false;
  }
  if (ok) add_value(d);
  return ok;
}

/* Pushes the value of the text. Returns false after a failure. */
static bool decode(decoder *d) {
  kw_json_token token;
  kw_json_kind kind;
  do {
    kind = kw_json_next(&d->reader, &token);
  } while (take(d, kind, &token));
  if (kind == KW_JSON_FAILED) {
    d->rc = d->reader.error;
    d->fault = d->reader.fault;
    d->fault_at = d->reader.at;
  }
  return kind == KW_JSON_END;
}

static int fail_at(decoder *d, kw_slice text) {
  size_t offset = (size_t)(d->fault_at - text.data), line, column;
  char message[KW_JSON_MESSAGE];
  kw_json_locate(text, offset, &line, &column);
  snprintf(message, sizeof message,
           "keywatch: line %zu, column %zu (byte %zu) of the JSON text: %s", line, column,
           offset + 1, d->fault);
  kw_bind_json_fail(d->L, d->rc, message);
  kw_bind_set_int(d->L, "position", (int64_t)offset + 1);
  return 2;
}

/* json_decode(text, options): the value, or nil and an error. */
static int l_decode(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  decoder d;
  d.L = L;
  d.options = (decode_options){.depth = KW_JSON_MAX_DEPTH, .max_bytes = KW_JSON_MAX_BYTES};
  lua_settop(L, 2);
  kw_bind_read_options(L, 2, "decode", decode_list, &d.options);
  kw_bind_json_check_limits(L, "decode", d.options.depth, d.options.max_bytes);
  d.arena = kw_bind_take_scratch(L, KW_JSON_SCRATCH);
  d.room = NULL;
  d.room_len = 0;
  d.is_careful = d.options.is_ordered || d.options.duplicates != 0;
  d.rc = KW_OK;
  if (text.len > (size_t)d.options.max_bytes) {
    char message[KW_JSON_MESSAGE];
    snprintf(message, sizeof message,
             "keywatch: the JSON text has %zu bytes, more than max_bytes (%" PRId64 ")", text.len,
             d.options.max_bytes);
    return kw_bind_json_fail(L, KW_ERR_RESOURCE_EXHAUSTED, message);
  }
  kw_json_read(&d.reader, text, (int)d.options.depth);
  if (!decode(&d)) return fail_at(&d, text);
  kw_bind_return_scratch(L, KW_JSON_SCRATCH, KW_JSON_SCRATCH_AT);
  return 1;
}

/* Pushes the metatable that marks arrays, or that of the orders of objects. */
static void push_mark(lua_State *L, const char *title) {
  lua_createtable(L, 0, 1);
  lua_pushstring(L, title);
  lua_setfield(L, -2, "__name");
}

void kw_bind_add_json(lua_State *L) {
  static const luaL_Reg functions[] = {{"json_decode", l_decode},
                                       {"json_encode", kw_bind_json_encode},
                                       {"json_items", kw_bind_json_items}};
  kw_bind_add_scratch(L);
  push_mark(L, "keywatch.json.array");
  push_mark(L, "keywatch.json.order");
  for (size_t i = 0; i < KW_LENGTH(functions); i++) {
    lua_pushnil(L);
    kw_bind_push_error_meta(L);
    lua_pushvalue(L, -4);
    lua_pushvalue(L, -4);
    lua_pushcclosure(L, functions[i].func, KW_JSON_ORDER);
    lua_setfield(L, -4, functions[i].name);
  }
  lua_pop(L, 1);
  lua_setfield(L, -2, "json_array");
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "json_null");
}
