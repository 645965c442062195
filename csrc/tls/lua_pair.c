/* SPDX-License-Identifier: MIT
 *
 * lua_pair: tls.self_sign.
 */
#include "tls/binding.h"
#include "tls/certificate.h"

#define PAIR_NAME "keywatch.tls.pair" /* a userdata that owns a pair until it was pushed */

static int l_gc(lua_State *L) {
  kw_tls_pair_drop(luaL_checkudata(L, 1, PAIR_NAME));
  return 0;
}

static void push_text(lua_State *L, BIO *bio) {
  char *bytes;
  long len = BIO_get_mem_data(bio, &bytes);
  lua_pushlstring(L, bytes, (size_t)len);
}

typedef struct fields {
  kw_slice hosts;
  kw_slice directory;
  double years;
} fields;

static const kw_tls_option options[] = {{"hosts", LUA_TSTRING, offsetof(fields, hosts)},
                                        {"directory", LUA_TSTRING, offsetof(fields, directory)},
                                        {"years", LUA_TNUMBER, offsetof(fields, years)},
                                        {NULL, 0, 0}};

/* tls.self_sign{ hosts =, years =, directory = }: makes a self-signed certificate. With a directory: writes cert.pem
 * and key.pem there, and returns true. Without: returns the certificate and the key as PEM text. Or returns
 * nil, text and kind of the failure. A userdata that no Lua code can reach owns the pair. */
static int l_self_sign(lua_State *L) {
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  fields given = {.hosts = kw_slice_of("", 0), .years = 1};
  if (!kw_tls_read_options(L, options, &given, &failure)) return kw_tls_push_failure(L, &failure);
  kw_tls_pair *pair = kw_new_object(L, PAIR_NAME, sizeof *pair, 0);
  bool ok = kw_tls_pair_init(pair, given.hosts, given.years, &failure);
  if (ok && given.directory.len == 0) {
    push_text(L, pair->certificate);
    push_text(L, pair->key);
  } else if (ok) {
    ok = kw_tls_pair_write(pair, (const char *)given.directory.data, &failure);
    lua_pushboolean(L, 1);
  }
  kw_tls_pair_drop(pair);
  if (!ok) return kw_tls_push_failure(L, &failure);
  return given.directory.len == 0 ? 2 : 1;
}

void kw_tls_add_pairs(lua_State *L) {
  static const luaL_Reg functions[] = {{"self_sign", l_self_sign}, {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", l_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  kw_add_class(L, PAIR_NAME, meta, none);
  luaL_setfuncs(L, functions, 0);
}
