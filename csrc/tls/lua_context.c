/* SPDX-License-Identifier: MIT
 *
 * lua_context: tls.client, tls.server, and contexts as Lua sees them.
 */
#include "tls/binding.h"

static kw_tls_context **check(lua_State *L, int i) {
  return luaL_checkudata(L, i, KW_TLS_CONTEXT_NAME);
}

kw_tls_context *kw_tls_check_context(lua_State *L, int i) {
  kw_tls_context **self = check(L, i);
  if (*self == NULL) luaL_error(L, "the context is closed");
  return *self;
}

/* Makes a context of the options, and an object for it. The object comes first. */
static int push_context(lua_State *L, const kw_tls_options *options) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  kw_tls_context **self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = NULL;
  luaL_getmetatable(L, KW_TLS_CONTEXT_NAME);
  lua_setmetatable(L, -2);
  *self = kw_tls_context_new(options, &failure);
  return *self != NULL ? 1 : kw_tls_push_failure(L, &failure);
}

/* tls.client{ ca =, cert =, key =, crl =, server_name =, verify =, cipher_suites =, min_version =, max_version = }: a
 * context; or nil, text and kind of the failure. */
static int l_client(lua_State *L) {
  static const char *const names[] = {
      "ca",          "cert",        "key",         "crl",    "cipher_suites",
      "min_version", "max_version", "server_name", "verify", NULL};
  kw_tls_push_options(L, names);
  kw_tls_options options = {
      .ca = kw_tls_check_text(L, 2, names[0]),
      .cert = kw_tls_check_text(L, 3, names[1]),
      .key = kw_tls_check_text(L, 4, names[2]),
      .crl = kw_tls_check_text(L, 5, names[3]),
      .cipher_suites = kw_tls_check_text(L, 6, names[4]),
      .min_version = kw_tls_check_text(L, 7, names[5]),
      .max_version = kw_tls_check_text(L, 8, names[6]),
      .server_name = kw_tls_check_text(L, 9, names[7]),
      .is_unverified = !kw_tls_check_flag(L, 10, names[8], true),
  };
  return push_context(L, &options);
}

/* tls.server{ cert =, key =, ca =, crl =, client_cert_auth =, allowed_hostname =, cipher_suites =, min_version =,
 * max_version = }: a context; or nil, text and kind of the failure. */
static int l_server(lua_State *L) {
  static const char *const names[] = {"ca",
                                      "cert",
                                      "key",
                                      "crl",
                                      "cipher_suites",
                                      "min_version",
                                      "max_version",
                                      "allowed_hostname",
                                      "client_cert_auth",
                                      NULL};
  kw_tls_push_options(L, names);
  kw_tls_options options = {
      .is_server = true,
      .ca = kw_tls_check_text(L, 2, names[0]),
      .cert = kw_tls_check_text(L, 3, names[1]),
      .key = kw_tls_check_text(L, 4, names[2]),
      .crl = kw_tls_check_text(L, 5, names[3]),
      .cipher_suites = kw_tls_check_text(L, 6, names[4]),
      .min_version = kw_tls_check_text(L, 7, names[5]),
      .max_version = kw_tls_check_text(L, 8, names[6]),
      .allowed_hosts = kw_tls_check_text(L, 9, names[7]),
      .wants_client_cert = kw_tls_check_flag(L, 10, names[8], false),
  };
  return push_context(L, &options);
}

/* context:connect(host, place): a channel to a server; or nil, text and kind of the failure. */
static int l_connect(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  check(L, 1);
  luaL_checktype(L, 2, LUA_TSTRING);
  if (!lua_isnoneornil(L, 3)) luaL_checktype(L, 3, LUA_TSTRING);
  const char *host = lua_tostring(L, 2);
  const char *place = lua_isnoneornil(L, 3) ? host : lua_tostring(L, 3);
  luaL_argcheck(L, strlen(host) == lua_rawlen(L, 2), 2, "the name has a zero byte");
  luaL_argcheck(L, place == host || strlen(place) == lua_rawlen(L, 3), 3,
                "the place has a zero byte");
  kw_tls_channel **channel = kw_tls_push_channel(L);
  *channel = kw_tls_channel_connect(kw_tls_check_context(L, 1), host, place, &failure);
  return *channel != NULL ? 1 : kw_tls_push_failure(L, &failure);
}

/* context:accept(): a channel to a client; or nil, text and kind of the failure. */
static int l_accept(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  check(L, 1);
  kw_tls_channel **channel = kw_tls_push_channel(L);
  *channel = kw_tls_channel_accept(kw_tls_check_context(L, 1), &failure);
  return *channel != NULL ? 1 : kw_tls_push_failure(L, &failure);
}

/* context:refresh(): true if the files are in order, after those that changed were read again; or nil, text and kind
 * of the failure. The context then continues with the old files. */
static int l_refresh(lua_State *L) {
  kw_tls_context *self = kw_tls_check_context(L, 1);
  if (!kw_tls_context_refresh(self)) {
    kw_tls_failure failure = *kw_tls_context_trouble(self);
    return kw_tls_push_failure(L, &failure);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* context:trouble(): text and kind of the failure if files have changed and cannot be used; or nothing. Does not look
 * at the files. */
static int l_trouble(lua_State *L) {
  kw_tls_failure failure = *kw_tls_context_trouble(kw_tls_check_context(L, 1));
  if (failure.fault == KW_TLS_NONE) return 0;
  kw_tls_push_failure(L, &failure);
  return 2;
}

/* context:news(): "changed" if files have changed since the last call, and are used; "trouble" and its text if files
 * have changed and cannot be used; or nothing. Does not look at the files. */
static int l_news(lua_State *L) {
  kw_tls_context *self = kw_tls_check_context(L, 1);
  kw_tls_news news = kw_tls_context_take_news(self);
  if (news == KW_TLS_NO_NEWS) return 0;
  kw_tls_failure trouble = *kw_tls_context_trouble(self);
  lua_pushstring(L, news == KW_TLS_FILES_CHANGED ? "changed" : "trouble");
  if (news == KW_TLS_FILES_CHANGED) return 1;
  lua_pushstring(L, trouble.text);
  return 2;
}

static void set_text(lua_State *L, const char *name, const char *text) {
  lua_pushstring(L, text);
  lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, int64_t number) {
  lua_pushnumber(L, (lua_Number)number);
  lua_setfield(L, -2, name);
}

/* context:certificate(): the own certificate: { subject =, issuer =, names =, not_before =, not_after = }, times in
 * seconds since 1970; or nil if the context has none. */
static int l_certificate(lua_State *L) {
  kw_tls_summary summary;
  X509 *own = kw_tls_context_certificate(kw_tls_check_context(L, 1));
  if (own == NULL || !kw_tls_enter()) return 0;
  kw_tls_summarize(own, &summary);
  kw_tls_leave();
  lua_newtable(L);
  set_text(L, "subject", summary.subject);
  set_text(L, "issuer", summary.issuer);
  set_text(L, "names", summary.names);
  set_number(L, "not_before", summary.not_before);
  set_number(L, "not_after", summary.not_after);
  return 1;
}

/* context:is_for(host): true if the own certificate is for that name or address. */
static int l_is_for(lua_State *L) {
  size_t len;
  luaL_checktype(L, 2, LUA_TSTRING);
  const char *host = lua_tolstring(L, 2, &len);
  X509 *own = kw_tls_context_certificate(kw_tls_check_context(L, 1));
  bool is_for = false;
  if (own != NULL && kw_tls_enter()) {
    is_for = kw_tls_is_for(own, host, len);
    kw_tls_leave();
  }
  lua_pushboolean(L, is_for);
  return 1;
}

/* context:close(): open channels stay usable. */
static int l_close(lua_State *L) {
  kw_tls_context **self = check(L, 1);
  kw_tls_context *context = *self;
  *self = NULL;
  if (context != NULL) kw_tls_context_release(context);
  return 0;
}

void kw_tls_add_contexts(lua_State *L) {
  static const luaL_Reg functions[] = {{"client", l_client}, {"server", l_server}, {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"connect", l_connect}, {"accept", l_accept}, {"refresh", l_refresh},
      {"trouble", l_trouble}, {"news", l_news},     {"certificate", l_certificate},
      {"is_for", l_is_for},   {"close", l_close},   {NULL, NULL}};
  kw_add_class(L, KW_TLS_CONTEXT_NAME, meta, methods);
  luaL_setfuncs(L, functions, 0);
}
