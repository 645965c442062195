/* SPDX-License-Identifier: MIT
 *
 * lua_options: tables of options, and failures as results.
 */
#include "tls/binding.h"

static const char *const fault_names[] = {
#define X(name, text) [KW_TLS_##name] = text,
    KW_TLS_FAULTS(X)
#undef X
};

int kw_tls_push_failure(lua_State *L, const kw_tls_failure *failure) {
  lua_pushnil(L);
  lua_pushstring(L, failure->text);
  lua_pushstring(L, fault_names[failure->fault]);
  return 3;
}

static bool is_option(const kw_tls_option *options, const char *name) {
  for (; options->name != NULL; options++) {
    if (strcmp(options->name, name) == 0) return true;
  }
  return false;
}

/* A key is converted only as a copy, since conversion would confuse lua_next. */
static bool check_names(lua_State *L, const kw_tls_option *options, kw_tls_failure *failure) {
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    if (lua_type(L, -1) != LUA_TSTRING || !is_option(options, lua_tostring(L, -1))) {
      const char *name = lua_tostring(L, -1);
      kw_tls_fail(failure, KW_TLS_OPTION, "there is no option 'tls.%.100s'",
                  name == NULL ? luaL_typename(L, -1) : name);
      return false;
    }
    lua_pop(L, 1);
  }
  return true;
}

/* Reads the value on top of the stack. Returns NULL, or the error of the value, as the end of a sentence. */
static const char *read_value(lua_State *L, int type, void *to) {
  size_t len;
  if (type == LUA_TBOOLEAN) *(bool *)to = lua_toboolean(L, -1);
  if (type == LUA_TNUMBER) *(double *)to = lua_tonumber(L, -1);
  if (type != LUA_TSTRING) return NULL;
  const char *text = lua_tolstring(L, -1, &len);
  *(kw_slice *)to = kw_slice_of(text, len);
  if (len == 0) return "must not be empty";
  return memchr(text, 0, len) == NULL ? NULL : "must not have a zero byte";
}

bool kw_tls_read_options(lua_State *L, const kw_tls_option *options, void *fields,
                         kw_tls_failure *failure) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  luaL_checkstack(L, LUA_MINSTACK + KW_TLS_MOST_OPTIONS, "options");
  if (!check_names(L, options, failure)) return false;
  for (; options->name != NULL && failure->fault == KW_TLS_NONE; options++) {
    lua_pushstring(L, options->name);
    lua_rawget(L, 1);
    if (lua_isnil(L, -1)) continue;
    if (lua_type(L, -1) != options->type) {
      kw_tls_fail(failure, KW_TLS_OPTION, "option 'tls.%s' must be a %s, not a %s", options->name,
                  lua_typename(L, options->type), luaL_typename(L, -1));
      return false;
    }
    const char *wrong = read_value(L, options->type, (char *)fields + options->at);
    if (wrong != NULL)
      kw_tls_fail(failure, KW_TLS_OPTION, "option 'tls.%s' %s", options->name, wrong);
  }
  return failure->fault == KW_TLS_NONE;
}
