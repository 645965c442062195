/* SPDX-License-Identifier: MIT */
#include "bind/lua_options.h"

#include "bind/lua_reply.h"

#define MOST_OWNERS 100 /* a chain of tables that is longer has a cycle */

#define EXPECTED(kind, text) [KW_OPTION_##kind] = text

static const char *const expected[] = {
    EXPECTED(BOOL, "a boolean"),
    EXPECTED(COUNT, "a whole number that is not negative"),
    EXPECTED(INT, "a whole number"),
    EXPECTED(ID, "an id: a whole number, a decimal string, or a lease"),
    EXPECTED(BITS, "a number of 64 bits: a whole number, or a decimal string"),
    EXPECTED(BYTES, "a string"),
    EXPECTED(ENUM, "one of"),
    EXPECTED(SECONDS, "a number of seconds"),
    EXPECTED(TABLE, "a table"),
};

bool kw_bind_is(lua_State *L, int at, const char *name) {
  if (lua_type(L, at) != LUA_TSTRING) return false;
  kw_slice bytes = kw_bind_bytes(L, at);
  return bytes.len == strlen(name) && memcmp(bytes.data, name, bytes.len) == 0;
}

bool kw_bind_push_field(lua_State *L, int at, const char *name) {
  if (at < 0) at = lua_gettop(L) + at + 1;
  lua_pushnil(L);
  while (lua_next(L, at) != 0) {
    if (kw_bind_is(L, -2, name)) {
      lua_replace(L, -2);
      return true;
    }
    lua_pop(L, 1);
  }
  return false;
}

/* True if the value at index `at` is a store. */
static bool is_store(lua_State *L, int at) {
  int top = lua_gettop(L);
  if (lua_type(L, at) != LUA_TUSERDATA || !lua_getmetatable(L, at)) return false;
  bool found = kw_bind_push_field(L, -1, "__name") && kw_bind_is(L, -1, KW_STORE_NAME);
  lua_settop(L, top);
  return found;
}

/* Raises if the table on top of the stack is a lease of a store in this process, and the store at index 1 is another
 * one. Between a lease and its store there may be namespaces and fences. */
static void check_owner(lua_State *L, const char *what, const kw_option *option) {
  lua_pushvalue(L, -1);
  for (int i = 0; i < MOST_OWNERS && lua_istable(L, -1); i++) {
    if (!kw_bind_push_field(L, -1, "owner")) break;
    lua_remove(L, -2);
  }
  if (is_store(L, -1) && is_store(L, 1) && !lua_rawequal(L, -1, 1))
    luaL_error(L, "%s: option '%s': the lease belongs to another store", what, option->name);
  lua_pop(L, 1);
}

static bool read_id(lua_State *L, const char *what, const kw_option *option, int64_t *id) {
  if (!lua_istable(L, -1)) return kw_bind_to_id(L, -1, id);
  check_owner(L, what, option);
  if (!kw_bind_push_field(L, -1, "id")) return false;
  bool ok = kw_bind_to_id(L, -1, id);
  lua_pop(L, 1);
  return ok;
}

static bool read_enum(lua_State *L, const char *const *names, int *at) {
  for (int i = 0; names[i] != NULL; i++) {
    if (!kw_bind_is(L, -1, names[i])) continue;
    *at = i;
    return true;
  }
  return false;
}

/* Reads the value on top of the stack. Returns false if it is of another kind. */
static bool read_value(lua_State *L, const char *what, const kw_option *option, void *to) {
  switch (option->kind) {
    case KW_OPTION_BOOL: *(bool *)to = lua_toboolean(L, -1); return lua_isboolean(L, -1);
    case KW_OPTION_COUNT: return kw_bind_to_int(L, -1, to) && *(int64_t *)to >= 0;
    case KW_OPTION_INT: return kw_bind_to_int(L, -1, to);
    case KW_OPTION_ID: return read_id(L, what, option, to);
    case KW_OPTION_BITS: return kw_bind_to_uint(L, -1, to);
    case KW_OPTION_BYTES:
      if (lua_type(L, -1) != LUA_TSTRING) return false;
      *(kw_slice *)to = kw_bind_bytes(L, -1);
      return true;
    case KW_OPTION_ENUM: return read_enum(L, option->names, to);
    case KW_OPTION_SECONDS:
      *(kw_seconds *)to = (kw_seconds){.is_given = true, .value = lua_tonumber(L, -1)};
      return lua_type(L, -1) == LUA_TNUMBER && lua_tonumber(L, -1) == lua_tonumber(L, -1);
    case KW_OPTION_TABLE: return lua_istable(L, -1);
  }
  return false;
}

/* Raises: the value on top of the stack does not have the kind of the option. */
static void refuse(lua_State *L, const char *what, const kw_option *option) {
  lua_pushstring(L, expected[option->kind]);
  for (int i = 0; option->kind == KW_OPTION_ENUM && option->names[i] != NULL; i++) {
    lua_pushfstring(L, "%s '%s'", i == 0 ? "" : ",", option->names[i]);
    lua_concat(L, 2);
  }
  const char *wanted = lua_tostring(L, -1);
  int type = lua_type(L, -2);
  if (type == LUA_TNUMBER || type == LUA_TSTRING) {
    lua_Number number = type == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
    if (number == number) {
      lua_pushvalue(L, -2);
    } else {
      lua_pushliteral(L, "nan"); /* some systems write -nan */
    }
    bool takes_text = option->kind == KW_OPTION_ID || option->kind == KW_OPTION_BITS;
    const char *hint = !kw_bind_is_inexact(L, -1) || option->kind == KW_OPTION_SECONDS ? ""
                       : takes_text ? ", which is not exact: give a decimal string"
                                    : ", which is not exact";
    const char *quote = type == LUA_TSTRING ? "'" : "";
    luaL_error(L, "%s: option '%s' must be %s, not %s%s%s%s", what, option->name, wanted, quote,
               lua_tostring(L, -1), quote, hint);
  }
  luaL_error(L, "%s: option '%s' must be %s, not a %s", what, option->name, wanted,
             luaL_typename(L, -2));
}

/* Returns the option whose name is below the top of the stack, or NULL. */
static const kw_option *find_option(lua_State *L, const kw_option *list) {
  while (list->name != NULL && !kw_bind_is(L, -2, list->name)) list++;
  return list->name == NULL ? NULL : list;
}

static void read_option(lua_State *L, const char *what, const kw_option *list, void *record) {
  kw_seconds unused; /* as large as any value that is not stored */
  if (lua_type(L, -2) != LUA_TSTRING) {
    luaL_error(L, "%s: an option must have a name that is a string, not a %s", what,
               luaL_typename(L, -2));
    return;
  }
  const kw_option *option = find_option(L, list);
  if (option == NULL) {
    luaL_error(L, "%s: there is no option '%s'", what, lua_tostring(L, -2));
    return;
  }
  void *to = option->offset == KW_NOWHERE ? (void *)&unused : (char *)record + option->offset;
  if (!read_value(L, what, option, to)) refuse(L, what, option);
}

void kw_bind_read_options(lua_State *L, int at, const char *what, const kw_option *list,
                          void *record) {
  if (lua_isnoneornil(L, at)) return;
  if (!lua_istable(L, at)) {
    luaL_error(L, "%s: options must be a table, not a %s", what, luaL_typename(L, at));
    return;
  }
  if (at < 0) at = lua_gettop(L) + at + 1;
  luaL_checkstack(L, 8, what);
  lua_pushnil(L);
  while (lua_next(L, at) != 0) {
    read_option(L, what, list, record);
    lua_pop(L, 1);
  }
}

void kw_bind_read_times(lua_State *L, int at, const char *what, kw_times *times) {
  struct fields {
    kw_times times;
  } fields = {0};
  static const kw_option options[] = {KW_COMMON_OPTIONS(struct fields), KW_END_OF_OPTIONS};
  kw_bind_read_options(L, at, what, options, &fields);
  kw_bind_keep_times(times, &fields.times);
}
