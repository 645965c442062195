/* SPDX-License-Identifier: MIT
 *
 * lua_context: tls.client, tls.server, and contexts in Lua.
 */
#include <math.h>

#include "tls/binding.h"
#include "tls/certificate.h"

static kw_tls_context **check(lua_State *L, int i) {
  return luaL_checkudata(L, i, KW_TLS_CONTEXT_NAME);
}

kw_tls_context *kw_tls_check_context(lua_State *L, int i) {
  kw_tls_context **self = check(L, i);
  if (*self == NULL) luaL_error(L, "the context is closed");
  return *self;
}

/* Makes the object of a context, and then the context from the options. */
static int push_context(lua_State *L, const kw_tls_options *options) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  kw_tls_context **self = kw_new_object(L, KW_TLS_CONTEXT_NAME, sizeof *self, 0);
  *self = kw_tls_context_new(options, &failure);
  return *self != NULL ? 1 : kw_tls_push_failure(L, &failure);
}

/* {====== Options ====== */

typedef struct fields {
  kw_tls_options options;
  bool verify;
  bool is_auto; /* this field and the next two: a server makes its certificate itself */
  kw_slice directory;
  double years;
} fields;

#define NOT_GIVEN (-HUGE_VAL) /* of years */

#define TEXT(name, field)                                                                          \
  { name, LUA_TSTRING, offsetof(fields, field) }

#define COMMON_OPTIONS                                                                             \
  TEXT("ca", options.ca), TEXT("cert", options.cert), TEXT("key", options.key),                    \
      TEXT("crl", options.crl), TEXT("cipher_suites", options.cipher_suites),                      \
      TEXT("min_version", options.min_version), TEXT("max_version", options.max_version)

static const kw_tls_option client_options[] = {COMMON_OPTIONS,
                                               TEXT("server_name", options.server_name),
                                               {"verify", LUA_TBOOLEAN, offsetof(fields, verify)},
                                               {NULL, 0, 0}};

static const kw_tls_option server_options[] = {
    COMMON_OPTIONS,
    TEXT("allowed_hostname", options.allowed_hosts),
    {"client_cert_auth", LUA_TBOOLEAN, offsetof(fields, options.wants_client_cert)},
    {"auto", LUA_TBOOLEAN, offsetof(fields, is_auto)},
    TEXT("directory", directory),
    {"validity_years", LUA_TNUMBER, offsetof(fields, years)},
    {NULL, 0, 0}};

/* Returns the rule that the options of a self-made certificate break; or NULL. */
static const char *broken_rule(const fields *given) {
  bool has_cert = given->options.cert.len > 0;
  if (given->directory.len > 0 && !given->is_auto)
    return "option 'tls.directory' has an effect only with 'tls.auto'";
  if (given->years != NOT_GIVEN && !given->is_auto)
    return "option 'tls.validity_years' has an effect only with 'tls.auto'";
  if (given->is_auto && has_cert) return "options 'tls.auto' and 'tls.cert' exclude each other";
  if (given->is_auto || has_cert || given->options.key.len > 0) return NULL;
  return "option 'tls' must have 'cert' and 'key', or 'auto = true'";
}

/* }====== */

/* tls.client({ ca =, cert =, key =, crl =, server_name =, verify =, cipher_suites =, min_version =, max_version = },
 * protocols): a context; or nil, text and kind of the failure. protocols: "h2", the default, "h1" or "any". */
static int l_client(lua_State *L) {
  static const char *const protocols[] = {"h2", "h1", "any", NULL};
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  int protocol = luaL_checkoption(L, 2, "h2", protocols);
  fields given = {.verify = true};
  given.options.takes_http1 = protocol != 0;
  given.options.refuses_h2 = protocol == 1;
  if (!kw_tls_read_options(L, client_options, &given, &failure))
    return kw_tls_push_failure(L, &failure);
  given.options.is_unverified = !given.verify;
  return push_context(L, &given.options);
}

static bool read_server(lua_State *L, fields *given, kw_tls_failure *failure) {
  *given = (fields){.options.is_server = true, .years = NOT_GIVEN};
  return kw_tls_read_options(L, server_options, given, failure);
}

/* tls.server{ cert =, key =, ca =, crl =, client_cert_auth =, allowed_hostname =, cipher_suites =, min_version =,
 * max_version = }: a context; or nil, text and kind of the failure. Other options of tls.check are ignored. */
static int l_server(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  fields given;
  if (!read_server(L, &given, &failure)) return kw_tls_push_failure(L, &failure);
  return push_context(L, &given.options);
}

/* tls.check(options): true if these options, which may include auto =, directory = and validity_years =, are valid for
 * a server; or nil, text and kind of the failure. Does not read files. */
static int l_check(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  fields given;
  if (!read_server(L, &given, &failure)) return kw_tls_push_failure(L, &failure);
  const char *rule = broken_rule(&given);
  if (rule != NULL) kw_tls_fail(&failure, KW_TLS_OPTION, "%s", rule);
  if (given.years != NOT_GIVEN) kw_tls_check_years(given.years, &failure);
  if (failure.fault != KW_TLS_NONE || !kw_tls_context_check(&given.options, &failure))
    return kw_tls_push_failure(L, &failure);
  lua_pushboolean(L, 1);
  return 1;
}

/* context:connect(host, cache_key): a channel to a server; or nil, text and kind of the failure. */
static int l_connect(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  check(L, 1);
  luaL_checktype(L, 2, LUA_TSTRING);
  if (!lua_isnoneornil(L, 3)) luaL_checktype(L, 3, LUA_TSTRING);
  const char *host = lua_tostring(L, 2);
  const char *cache_key = lua_isnoneornil(L, 3) ? host : lua_tostring(L, 3);
  luaL_argcheck(L, strlen(host) == lua_rawlen(L, 2), 2, "the name has a zero byte");
  luaL_argcheck(L, cache_key == host || strlen(cache_key) == lua_rawlen(L, 3), 3,
                "the cache key has a zero byte");
  kw_tls_channel **channel = kw_tls_push_channel(L);
  *channel = kw_tls_channel_connect(kw_tls_check_context(L, 1), host, cache_key, &failure);
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

/* context:refresh(): reads files that have changed. Returns true if all files are usable; or nil, text and kind of the
 * failure: the context then continues with the old files. */
static int l_refresh(lua_State *L) {
  kw_tls_context *self = kw_tls_check_context(L, 1);
  if (!kw_tls_context_refresh(self)) {
    kw_tls_failure failure = *kw_tls_context_trouble(self);
    return kw_tls_push_failure(L, &failure);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* context:trouble(): text and kind of the failure if the last refresh has failed; or nothing. Does not read the
 * files. */
static int l_trouble(lua_State *L) {
  kw_tls_failure failure = *kw_tls_context_trouble(kw_tls_check_context(L, 1));
  if (failure.fault == KW_TLS_NONE) return 0;
  kw_tls_push_failure(L, &failure);
  return 2;
}

/* context:news(): "changed" if files have changed since the last call, and are used; "trouble" and its text if files
 * have changed and cannot be used; or nothing. Does not read the files. */
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
  static const luaL_Reg functions[] = {
      {"client", l_client}, {"server", l_server}, {"check", l_check}, {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"connect", l_connect}, {"accept", l_accept}, {"refresh", l_refresh},
      {"trouble", l_trouble}, {"news", l_news},     {"certificate", l_certificate},
      {"is_for", l_is_for},   {"close", l_close},   {NULL, NULL}};
  kw_add_class(L, KW_TLS_CONTEXT_NAME, meta, methods);
  luaL_setfuncs(L, functions, 0);
}
