/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "bind/lua_json_call.h"

#include "bind/lua_options.h"
#include "bind/lua_scratch.h"
#include "bind/lua_value.h"
#include "codec/json.h"
#include "model/error.h"

#define FIRST_BYTES KW_LIMIT(2048, 32) /* enough for most texts, without an allocation */
#define PATH_ROOM 200
#define MAX_INDENT 16

/* Stack: the argument, the options, the scratch, a list of names or nil, the argument again. Then for each object and
 * array a key and its value, which is the next object or array. */
enum { NAMES = KW_JSON_SCRATCH_AT + 1, ROOT };

typedef struct encode_options {
  int64_t depth;
  int64_t max_bytes;
  int64_t indent;
  bool sorts;
} encode_options;

#define OPTION(name, kind, field)                                                                  \
  { name, KW_OPTION_##kind, offsetof(encode_options, field), NULL }

static const kw_option encode_list[] = {
    OPTION("depth", COUNT, depth), OPTION("max_bytes", COUNT, max_bytes),
    OPTION("indent", COUNT, indent), OPTION("sort_keys", BOOL, sorts), KW_END_OF_OPTIONS};

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
  if (lua_rawequal(L, -1, lua_upvalueindex(KW_JSON_MARK))) {
    found = ARRAY;
  } else if (lua_getmetatable(L, -1)) {
    if (lua_rawequal(L, -1, lua_upvalueindex(KW_JSON_ORDER))) found = ORDERED;
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
  bool is_whole = x >= -KW_JSON_EXACT && x <= KW_JSON_EXACT && (lua_Number)(int64_t)x == x;
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
  char path[PATH_ROOM], message[KW_JSON_MESSAGE];
  if (e->fault == NULL) {
    snprintf(message, sizeof message,
             "keywatch: the JSON text would be longer than max_bytes (%" PRId64 ")",
             e->options.max_bytes);
    return kw_bind_json_fail(L, e->writer.error, message);
  }
  put_path(L, path);
  if (e->fault[0] != 0) {
    snprintf(message, sizeof message, "keywatch: %s %s", path, e->fault);
  } else {
    snprintf(message, sizeof message, "keywatch: %s has the type %s, which JSON does not have",
             path, luaL_typename(L, -1));
  }
  return kw_bind_json_fail(L, e->rc, message);
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

int kw_bind_json_encode(lua_State *L) {
  encoder e;
  luaL_checkany(L, 1);
  lua_settop(L, 2);
  e.L = L;
  e.options = (encode_options){.depth = KW_JSON_MAX_DEPTH, .max_bytes = KW_JSON_MAX_BYTES};
  kw_bind_read_options(L, 2, "encode", encode_list, &e.options);
  kw_bind_json_check_limits(L, "encode", e.options.depth, e.options.max_bytes);
  kw_bind_json_check_range(L, "encode", "indent", e.options.indent, 0, MAX_INDENT);
  e.arena = kw_bind_take_scratch(L, KW_JSON_SCRATCH);
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
  kw_bind_return_scratch(L, KW_JSON_SCRATCH, KW_JSON_SCRATCH_AT);
  return 1;
}
