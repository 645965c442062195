/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "bind/lua_json.h"

#include "bind/lua_error.h"
#include "bind/lua_options.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/json.h"
#include "model/error.h"

#define MAX_BYTES (INT64_C(64) << 20) /* of a text, unless the option `max_bytes` is given */
#define MAX_INDENT 16
#define EXACT_MAX (INT64_C(1) << 53) /* a double represents every whole number up to here */
#define TEXT_ROOM 512                /* of the message of an error */

/* Upvalues and stack of both functions: the argument, the options, then the scratch. */
enum { UP_SCRATCH = 1, UP_ERROR, UP_ARRAY, UP_ORDER };
enum { SCRATCH = 3 };

/* Frees the scratch, and pushes nil and an error. */
static int fail(lua_State *L, int rc, const char *text) {
  lua_settop(L, SCRATCH);
  kw_bind_return_scratch(L, UP_SCRATCH, SCRATCH);
  kw_bind_push_failure(L, lua_upvalueindex(UP_ERROR), rc);
  if (rc != KW_ERR_NO_MEMORY) kw_bind_set_message(L, text);
  return 2;
}

/* Raises if an option is not in a range. */
static void check_range(lua_State *L, const char *what, const char *option, int64_t v, int min,
                        int max) {
  if (v >= min && v <= max) return;
  luaL_error(L, "%s: option '%s' must be from %d to %d", what, option, min, max);
}

/* Checks the options that both functions have. Elements of an array are counted by an int. */
static void check_limits(lua_State *L, const char *what, int64_t depth, int64_t max_bytes) {
  check_range(L, what, "depth", depth, 1, KW_JSON_MAX_DEPTH);
  check_range(L, what, "max_bytes", max_bytes, 0, INT_MAX);
}

/* {====== Decoding ====== */

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
  if (!kw_json_to_double(token->text, &x)) {
    return refuse(d, token, KW_ERR_OUT_OF_RANGE, "the number is too large");
  }
  lua_pushnumber(d->L, x);
  return true;
}

/* Pushes an integer that a number of Lua may not hold. */
static bool push_big(decoder *d, const kw_json_token *token) {
  if (d->options.integers == BIG_AS_NUMBER) return push_float(d, token);
  if (d->options.integers == BIG_REFUSED) {
    return refuse(d, token, KW_ERR_OUT_OF_RANGE, "a number of Lua cannot hold the integer");
  }
  kw_bind_push_slice(d->L, token->text);
  return true;
}

static bool push_integer(decoder *d, const kw_json_token *token) {
  int64_t v = token->integer;
  if (!KW_INTEGERS && (v < -EXACT_MAX || v > EXACT_MAX)) return push_big(d, token);
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
    lua_pushvalue(L, lua_upvalueindex(UP_ARRAY));
    lua_setmetatable(L, -2);
  } else if (d->options.is_ordered) {
    lua_pushvalue(L, lua_upvalueindex(UP_ORDER));
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
  char message[TEXT_ROOM];
  kw_json_locate(text, offset, &line, &column);
  snprintf(message, sizeof message,
           "keywatch: line %zu, column %zu (byte %zu) of the JSON text: %s", line, column,
           offset + 1, d->fault);
  fail(d->L, d->rc, message);
  kw_bind_set_int(d->L, "position", (int64_t)offset + 1);
  return 2;
}

/* json_decode(text, options): the value, or nil and an error. */
static int l_decode(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  decoder d;
  d.L = L;
  d.options = (decode_options){.depth = KW_JSON_MAX_DEPTH, .max_bytes = MAX_BYTES};
  lua_settop(L, 2);
  kw_bind_read_options(L, 2, "decode", decode_list, &d.options);
  check_limits(L, "decode", d.options.depth, d.options.max_bytes);
  d.arena = kw_bind_take_scratch(L, UP_SCRATCH);
  d.room = NULL;
  d.room_len = 0;
  d.is_careful = d.options.is_ordered || d.options.duplicates != 0;
  d.rc = KW_OK;
  if (text.len > (size_t)d.options.max_bytes) {
    char message[TEXT_ROOM];
    snprintf(message, sizeof message,
             "keywatch: the JSON text has %zu bytes, more than max_bytes (%" PRId64 ")", text.len,
             d.options.max_bytes);
    return fail(L, KW_ERR_RESOURCE_EXHAUSTED, message);
  }
  kw_json_read(&d.reader, text, (int)d.options.depth);
  if (!decode(&d)) return fail_at(&d, text);
  kw_bind_return_scratch(L, UP_SCRATCH, SCRATCH);
  return 1;
}

/* }====== */

/* {====== Encoding ====== */

#define FIRST_BYTES KW_LIMIT(2048, 32) /* enough for most texts, without an allocation */
#define PATH_ROOM 200

/* Stack: the argument, the options, the scratch, a list of names or nil, the argument again. Then for each object and
 * array a key and its value, which is the next object or array. */
enum { NAMES = SCRATCH + 1, ROOT };

typedef struct encode_options {
  int64_t depth;
  int64_t max_bytes;
  int64_t indent;
  bool sorts;
} encode_options;

static const kw_option encode_list[] = {OPTION("depth", COUNT, encode_options, depth, NULL),
                                        OPTION("max_bytes", COUNT, encode_options, max_bytes, NULL),
                                        OPTION("indent", COUNT, encode_options, indent, NULL),
                                        OPTION("sort_keys", BOOL, encode_options, sorts, NULL),
                                        KW_END_OF_OPTIONS};

/* A name that is to be sorted. */
typedef struct name {
  kw_slice bytes;
  int at; /* its index in the list of names, which keeps the string alive */
} name;

typedef struct encoder {
  lua_State *L;
  kw_arena *arena;
  encode_options options;
  name *names; /* of the objects that are being written, the outermost first */
  size_t n_names;
  size_t cap_names;
  const char *fault; /* what is wrong with the value that the stack leads to */
  int rc;            /* of the error with the fault */
  kw_json_writer writer;
  uint8_t first[FIRST_BYTES];
} encoder;

static bool put_value(encoder *e);

/* Refuses the value on top of the stack. */
static bool blame(encoder *e, const char *fault) {
  e->fault = fault;
  return false;
}

/* Refuses the table below the key and the value on top of the stack. */
static bool blame_table(encoder *e, const char *fault) {
  lua_pop(e->L, 2);
  return blame(e, fault);
}

/* Writes the key, below the top of the stack, and the value on top of it. */
static bool put_member(encoder *e) {
  if (lua_type(e->L, -2) != LUA_TSTRING) {
    return blame_table(e, "has a key that is not a string");
  }
  if (kw_json_put_name(&e->writer, kw_bind_bytes(e->L, -2))) return put_value(e);
  if (e->writer.error != KW_ERR_INVALID_ARGUMENT) return false;
  return blame_table(e, "has a name that is not UTF-8");
}

/* {====== Objects in order ====== */

static bool add_name(encoder *e, name one) {
  if (e->n_names == e->cap_names) {
    size_t cap = e->cap_names == 0 ? 64 : 2 * e->cap_names;
    name *names = kw_arena_array(e->arena, cap, sizeof *names);
    if (names == NULL) {
      e->writer.error = KW_ERR_NO_MEMORY;
      return false;
    }
    if (e->n_names > 0) memcpy(names, e->names, e->n_names * sizeof *names);
    e->names = names;
    e->cap_names = cap;
  }
  e->names[e->n_names++] = one;
  return true;
}

static int compare_names(const void *a, const void *b) {
  return kw_slice_compare(((const name *)a)->bytes, ((const name *)b)->bytes);
}

/* Adds to the names those of the table at index `table`, in order, except for those in the set at index `set`, if that
 * is not 0. */
static bool gather_names(encoder *e, int table, int set) {
  lua_State *L = e->L;
  size_t from = e->n_names;
  if (lua_isnil(L, NAMES)) {
    lua_newtable(L);
    lua_replace(L, NAMES);
  }
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) {
      lua_settop(L, table);
      return blame(e, "has a key that is not a string");
    }
    lua_pushvalue(L, -2);
    if (set != 0) lua_rawget(L, set);
    bool is_left_out = set != 0 && !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (is_left_out) continue;
    name one = {.bytes = kw_bind_bytes(L, -2), .at = (int)e->n_names + 1};
    if (!add_name(e, one)) return false;
    lua_pushvalue(L, -2);
    lua_rawseti(L, NAMES, one.at);
  }
  if (e->n_names > from) qsort(e->names + from, e->n_names - from, sizeof(name), compare_names);
  return true;
}

/* Writes the members whose names were gathered since there were `from`. */
static bool put_gathered(encoder *e, int table, size_t from) {
  lua_State *L = e->L;
  for (size_t i = from, n = e->n_names; i < n; i++) {
    lua_rawgeti(L, NAMES, e->names[i].at);
    lua_pushvalue(L, -1);
    lua_rawget(L, table);
    if (!lua_isnil(L, -1) && !put_member(e)) return false;
    lua_settop(L, table);
  }
  e->n_names = from;
  return true;
}

static bool put_sorted(encoder *e, int table) {
  size_t from = e->n_names;
  return gather_names(e, table, 0) && put_gathered(e, table, from);
}

/* Pushes the name at a place of the order of the table; or nil, or another value if a program has changed the order. */
static void push_ordered_name(lua_State *L, int table, int i) {
  lua_getmetatable(L, table);
  lua_rawgeti(L, -1, i);
  lua_replace(L, -2);
}

/* Gathers the names that the table has, and its order does not. */
static bool gather_new_names(encoder *e, int table) {
  lua_State *L = e->L;
  int set = table + 1;
  lua_newtable(L);
  for (int i = 1;; i++) {
    push_ordered_name(L, table, i);
    if (lua_isnil(L, -1)) break;
    lua_pushboolean(L, 1);
    lua_rawset(L, set);
  }
  lua_settop(L, set);
  bool ok = gather_names(e, table, set);
  if (ok) lua_settop(L, table);
  return ok;
}

/* Writes an object in its order, and then the names that were added, sorted. */
static bool put_ordered(encoder *e, int table) {
  lua_State *L = e->L;
  size_t from = e->n_names, written = 0, n = 0;
  for (int i = 1;; i++) {
    push_ordered_name(L, table, i);
    if (lua_isnil(L, -1)) break;
    lua_pushvalue(L, -1);
    lua_rawget(L, table);
    bool is_there = !lua_isnil(L, -1);
    if (is_there && !put_member(e)) return false;
    lua_settop(L, table);
    written += is_there;
  }
  lua_settop(L, table);
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) n++;
  return n == written || (gather_new_names(e, table) && put_gathered(e, table, from));
}

/* }====== */

/* {====== Tables ====== */

#define NO_ARRAY "is no array: its keys are not 1 to n"

static bool is_index(lua_State *L, int at, lua_Number i) {
  return lua_type(L, at) == LUA_TNUMBER && lua_tonumber(L, at) == i;
}

/* True if the keys of the table are 1 to n. */
static bool has_all_indices(lua_State *L, int table, size_t *n) {
  lua_Number highest = 0;
  *n = 0;
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) {
    lua_Number key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
    if (key < 1 || key > INT_MAX || floor(key) != key) {
      lua_pop(L, 2);
      return false;
    }
    if (key > highest) highest = key;
    ++*n;
  }
  return highest == (lua_Number)*n;
}

/* Writes the elements after the first `written` ones, of an array whose keys are found in another order. */
static bool put_scattered(encoder *e, int table, size_t written) {
  lua_State *L = e->L;
  size_t n;
  lua_settop(L, table);
  if (!has_all_indices(L, table, &n)) return blame(e, NO_ARRAY);
  for (size_t i = written + 1; i <= n; i++) {
    lua_pushinteger(L, (lua_Integer)i);
    lua_rawgeti(L, table, (int)i);
    if (!put_value(e)) return false;
    lua_settop(L, table);
  }
  return true;
}

/* Writes the elements. The first key and its value are on top of the stack. */
static bool put_elements(encoder *e, int table) {
  lua_State *L = e->L;
  size_t n = 0;
  do {
    if (!is_index(L, -2, (lua_Number)(n + 1))) return put_scattered(e, table, n);
    if (!put_value(e)) return false;
    lua_pop(L, 1);
    n++;
  } while (lua_next(L, table) != 0);
  return true;
}

/* Writes the members. The first key and its value are on top of the stack. */
static bool put_members(encoder *e, int table) {
  do {
    if (!put_member(e)) return false;
    lua_pop(e->L, 1);
  } while (lua_next(e->L, table) != 0);
  return true;
}

typedef enum mark { UNMARKED, ARRAY, ORDERED } mark;

static mark mark_of(lua_State *L, int table) {
  mark found = UNMARKED;
  if (!lua_getmetatable(L, table)) return UNMARKED;
  if (lua_rawequal(L, -1, lua_upvalueindex(UP_ARRAY))) {
    found = ARRAY;
  } else if (lua_getmetatable(L, -1)) {
    if (lua_rawequal(L, -1, lua_upvalueindex(UP_ORDER))) found = ORDERED;
  }
  lua_settop(L, table);
  return found;
}

/* Writes what is between the brackets. The first key and its value are on top of the stack. */
static bool put_items(encoder *e, int table, bool is_object) {
  if (!is_object) return put_elements(e, table);
  if (!e->options.sorts) return put_members(e, table);
  lua_settop(e->L, table);
  return put_sorted(e, table);
}

/* Writes the table on top of the stack, and leaves the stack unchanged. */
static bool put_table(encoder *e) {
  lua_State *L = e->L;
  kw_json_writer *w = &e->writer;
  int table = lua_gettop(L);
  if (w->depth == e->options.depth) {
    e->rc = KW_ERR_RESOURCE_EXHAUSTED;
    return blame(e, "is nested too deep, or contains itself");
  }
  luaL_checkstack(L, 8, "encode");
  mark marked = mark_of(L, table);
  if (marked == ORDERED && !e->options.sorts) {
    return kw_json_begin(w, true) && put_ordered(e, table) && kw_json_end(w, true);
  }
  lua_pushnil(L);
  bool has_items = lua_next(L, table) != 0;
  bool is_object = marked != ARRAY && !(has_items && lua_type(L, -2) == LUA_TNUMBER);
  if (!kw_json_begin(w, is_object)) return false;
  if (has_items && !put_items(e, table, is_object)) return false;
  return kw_json_end(w, is_object);
}

/* }====== */

static bool put_number(encoder *e) {
  lua_Number x = lua_tonumber(e->L, -1);
#if KW_INTEGERS
  if (lua_isinteger(e->L, -1)) {
    return kw_json_put_integer(&e->writer, lua_tointeger(e->L, -1));
  }
#else
  bool is_whole = x >= -EXACT_MAX && x <= EXACT_MAX && (lua_Number)(int64_t)x == x;
  if (is_whole && (x != 0 || !signbit(x))) return kw_json_put_integer(&e->writer, (int64_t)x);
#endif
  if (isfinite(x)) return kw_json_put_double(&e->writer, x);
  return blame(e, isnan(x) ? "is nan, which JSON does not have"
                           : "is infinite, which JSON does not have");
}

static bool put_string(encoder *e) {
  if (kw_json_put_string(&e->writer, kw_bind_bytes(e->L, -1))) return true;
  return e->writer.error == KW_ERR_INVALID_ARGUMENT ? blame(e, "is not UTF-8") : false;
}

/* Writes the value on top of the stack, and leaves the stack unchanged. Returns false after a failure: the stack then
 * leads to the value that is at fault, if `fault` is set. */
static bool put_value(encoder *e) {
  lua_State *L = e->L;
  switch (lua_type(L, -1)) {
    case LUA_TSTRING: return put_string(e);
    case LUA_TTABLE: return put_table(e);
    case LUA_TNUMBER: return put_number(e);
    case LUA_TBOOLEAN:
      return kw_json_put_raw(&e->writer, kw_slice_text(lua_toboolean(L, -1) ? "true" : "false"));
    case LUA_TLIGHTUSERDATA:
      if (lua_touserdata(L, -1) == NULL) return kw_json_put_raw(&e->writer, kw_slice_text("null"));
  }
  return blame(e, "");
}

/* Adds a key to a path. Bytes that are not printable are shown as ?. */
static size_t add_key(lua_State *L, int at, char *path, size_t n) {
  char text[PATH_ROOM];
  size_t len = 0;
  bool is_word = true;
  if (lua_type(L, at) != LUA_TSTRING) {
    return n + (size_t)snprintf(path + n, PATH_ROOM - n, "[%.0f]", (double)lua_tonumber(L, at));
  }
  kw_slice bytes = kw_bind_bytes(L, at);
  for (; len < bytes.len && len < sizeof text - 1; len++) {
    uint8_t c = bytes.data[len];
    text[len] = c >= ' ' && c < 0x7f ? (char)c : '?';
    is_word = is_word && c > ' ' && c < 0x7f && strchr(".[]\"'", c) == NULL;
  }
  text[len] = 0;
  return n + (size_t)snprintf(path + n, PATH_ROOM - n, is_word ? ".%s" : "[\"%s\"]", text);
}

/* Writes the way from the argument to the value on top of the stack: value.items[2] */
static void put_path(lua_State *L, char *path) {
  size_t n = (size_t)snprintf(path, PATH_ROOM, "value");
  for (int at = ROOT + 1; at < lua_gettop(L) && n < PATH_ROOM; at += 2) n = add_key(L, at, path, n);
  if (n >= PATH_ROOM) memcpy(path + PATH_ROOM - 4, "...", 4);
}

static int fail_encoding(encoder *e) {
  lua_State *L = e->L;
  char path[PATH_ROOM], message[TEXT_ROOM];
  if (e->fault == NULL) {
    snprintf(message, sizeof message,
             "keywatch: the JSON text would be longer than max_bytes (%" PRId64 ")",
             e->options.max_bytes);
    return fail(L, e->writer.error, message);
  }
  put_path(L, path);
  if (e->fault[0] != 0) {
    snprintf(message, sizeof message, "keywatch: %s %s", path, e->fault);
  } else {
    snprintf(message, sizeof message, "keywatch: %s has the type %s, which JSON does not have",
             path, luaL_typename(L, -1));
  }
  return fail(L, e->rc, message);
}

/* Pushes the text that was written. Returns false if memory is short. */
static bool push_text(encoder *e, kw_chain *chain) {
  lua_State *L = e->L;
  kw_json_writer *w = &e->writer;
  if (!w->is_in_chain && chain->len == 0) {
    lua_pushlstring(L, (const char *)w->start, (size_t)(w->at - w->start));
    return true;
  }
  if (!kw_json_finish(w)) return false;
  struct iovec part;
  size_t len = chain->len;
  uint8_t *text = lua_newuserdatauv(L, len, 0), *at = text;
  while (kw_chain_peek(chain, &part, 1) == 1) {
    memcpy(at, part.iov_base, part.iov_len);
    at += part.iov_len;
    kw_chain_skip(chain, part.iov_len);
  }
  lua_pushlstring(L, (const char *)text, len);
  return true;
}

/* json_encode(value, options): the text, or nil and an error. */
static int l_encode(lua_State *L) {
  encoder e;
  luaL_checkany(L, 1);
  lua_settop(L, 2);
  e.L = L;
  e.options = (encode_options){.depth = KW_JSON_MAX_DEPTH, .max_bytes = MAX_BYTES};
  kw_bind_read_options(L, 2, "encode", encode_list, &e.options);
  check_limits(L, "encode", e.options.depth, e.options.max_bytes);
  check_range(L, "encode", "indent", e.options.indent, 0, MAX_INDENT);
  e.arena = kw_bind_take_scratch(L, UP_SCRATCH);
  e.names = NULL;
  e.n_names = e.cap_names = 0;
  e.fault = NULL;
  e.rc = KW_ERR_INVALID_ARGUMENT;
  lua_pushnil(L);
  lua_pushvalue(L, 1);
  kw_chain *chain = kw_bind_scratch_chain(e.arena);
  kw_json_write(&e.writer, chain, e.first, sizeof e.first, (size_t)e.options.max_bytes);
  e.writer.indent = (int)e.options.indent;
  if (!put_value(&e) || !push_text(&e, chain)) return fail_encoding(&e);
  kw_bind_return_scratch(L, UP_SCRATCH, SCRATCH);
  return 1;
}

/* }====== */

/* Pushes the metatable that marks arrays, or that of the orders of objects. */
static void push_mark(lua_State *L, const char *title) {
  lua_createtable(L, 0, 1);
  lua_pushstring(L, title);
  lua_setfield(L, -2, "__name");
}

void kw_bind_add_json(lua_State *L) {
  static const luaL_Reg functions[] = {{"json_decode", l_decode}, {"json_encode", l_encode}};
  kw_bind_add_scratch(L);
  push_mark(L, "keywatch.json.array");
  push_mark(L, "keywatch.json.order");
  for (size_t i = 0; i < KW_LENGTH(functions); i++) {
    lua_pushnil(L);
    kw_bind_push_error_meta(L);
    lua_pushvalue(L, -4);
    lua_pushvalue(L, -4);
    lua_pushcclosure(L, functions[i].func, UP_ORDER);
    lua_setfield(L, -4, functions[i].name);
  }
  lua_pop(L, 1);
  lua_setfield(L, -2, "json_array");
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "json_null");
}
