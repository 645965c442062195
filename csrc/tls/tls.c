/* SPDX-License-Identifier: MIT
 *
 * tls: opens the module keywatch.tls, and publishes its functions to drivers (face/tls.h). See binding.h.
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

/* {====== Options ====== */

static bool is_option(const kw_tls_option *options, const char *name) {
  for (; options->name != NULL; options++) {
    if (strcmp(options->name, name) == 0) return true;
  }
  return false;
}

/* A key is converted only in a copy, after which lua_next is not called. */
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

/* Reads the value on top of the stack. Returns what is wrong with it, or NULL. */
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

/* }====== */

/* {====== The functions for drivers ====== */

static kw_tls_context *context_of(void *object) {
  return *(kw_tls_context **)object;
}

static const kw_tls face = {
    .version = KW_TLS_VERSION,
    .context_of = context_of,
    .retain = kw_tls_context_retain,
    .release = kw_tls_context_release,
    .is_server = kw_tls_context_is_server,
    .accept = kw_tls_channel_accept,
    .connect = kw_tls_channel_connect,
    .feed = kw_tls_channel_feed,
    .step = kw_tls_channel_step,
    .read_from = kw_tls_channel_read_from,
    .write = kw_tls_channel_write,
    .finish = kw_tls_channel_finish,
    .pending = kw_tls_channel_pending,
    .wrote = kw_tls_channel_wrote,
    .state = kw_tls_channel_state,
    .failure = kw_tls_channel_failure,
    .common_name = kw_tls_channel_common_name,
    .close = kw_tls_channel_close,
};

/* }====== */

int KW_EXPORT luaopen_keywatch_tls(lua_State *L);

int luaopen_keywatch_tls(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_tls);
  const char *clash = kw_tls_library_clash();
  if (clash != NULL) return luaL_error(L, "%s", clash);
  kw_tls_library_begin();
  kw_publish(L, KW_TLS_KEY, &face, sizeof face);
  lua_newtable(L);
  kw_tls_add_contexts(L);
  kw_tls_add_channels(L);
  kw_tls_add_pairs(L);
  if (kw_module_probe != NULL) kw_module_probe(L);
  return 1;
}
