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

static bool is_one_of(const char *const *names, const char *name) {
  for (; *names != NULL; names++) {
    if (strcmp(*names, name) == 0) return true;
  }
  return false;
}

/* The key is not converted, which would confuse lua_next. */
static void check_names(lua_State *L, const char *const *names) {
  lua_pushnil(L);
  while (lua_next(L, 1) != 0) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "the names of options are strings");
    if (!is_one_of(names, lua_tostring(L, -1)))
      luaL_error(L, "there is no option '%s'", lua_tostring(L, -1));
  }
}

void kw_tls_push_options(lua_State *L, const char *const *names) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  check_names(L, names);
  for (int i = 0; names[i] != NULL; i++) {
    lua_pushstring(L, names[i]);
    lua_rawget(L, 1);
  }
}

kw_slice kw_tls_check_text(lua_State *L, int i, const char *name) {
  size_t len;
  if (lua_isnil(L, i)) return kw_slice_of("", 0);
  if (lua_type(L, i) != LUA_TSTRING) luaL_error(L, "the option %s is a string", name);
  const char *text = lua_tolstring(L, i, &len);
  if (memchr(text, 0, len) != NULL) luaL_error(L, "the option %s has a zero byte", name);
  return kw_slice_of(text, len);
}

bool kw_tls_check_flag(lua_State *L, int i, const char *name, bool otherwise) {
  if (lua_isnil(L, i)) return otherwise;
  if (!lua_isboolean(L, i)) luaL_error(L, "the option %s is a boolean", name);
  return lua_toboolean(L, i);
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
