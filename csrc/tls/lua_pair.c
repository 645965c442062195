/* SPDX-License-Identifier: MIT
 *
 * lua_pair: tls.self_sign.
 */
#include "tls/binding.h"
#include "tls/certificate.h"

#define PAIR_NAME "keywatch.tls.pair" /* a userdata that holds a pair until it was pushed */

static int l_gc(lua_State *L) {
  kw_tls_pair_drop(luaL_checkudata(L, 1, PAIR_NAME));
  return 0;
}

static void push_text(lua_State *L, BIO *bio) {
  char *bytes;
  long len = BIO_get_mem_data(bio, &bytes);
  lua_pushlstring(L, bytes, (size_t)len);
}

/* Makes a pair. Only the userdata on top of the stack, which no Lua code can reach, owns it. */
static bool make_pair(lua_State *L, kw_slice hosts, lua_Integer years, kw_tls_failure *failure) {
  kw_tls_pair *pair = lua_newuserdatauv(L, sizeof *pair, 0);
  *pair = (kw_tls_pair){NULL, NULL};
  luaL_getmetatable(L, PAIR_NAME);
  lua_setmetatable(L, -2);
  return kw_tls_pair_init(pair, hosts, years, failure);
}

/* tls.self_sign{ hosts =, years =, cert =, key =, directory = }: makes a certificate that is signed by itself. With the
 * paths cert and key: writes both, and returns true. With a directory: writes cert.pem and key.pem there, and returns
 * true. Without: returns the certificate and the key as PEM text. Or returns nil, text and kind of the failure. */
static int l_self_sign(lua_State *L) {
  static const char *const names[] = {"hosts", "years", "cert", "key", "directory", NULL};
  kw_tls_failure failure = {KW_TLS_NONE, ""};
  kw_tls_push_options(L, names);
  kw_slice hosts = kw_tls_check_text(L, 2, names[0]);
  lua_Integer years = lua_isnil(L, 3) ? 1 : luaL_checkinteger(L, 3);
  kw_slice cert = kw_tls_check_text(L, 4, names[2]);
  kw_slice key = kw_tls_check_text(L, 5, names[3]);
  kw_slice directory = kw_tls_check_text(L, 6, names[4]);
  if ((cert.len == 0) != (key.len == 0)) luaL_error(L, "the options cert and key need each other");
  if (cert.len > 0 && directory.len > 0)
    luaL_error(L, "the options cert and directory exclude each other");
  if (!make_pair(L, hosts, years, &failure)) return kw_tls_push_failure(L, &failure);
  kw_tls_pair *pair = lua_touserdata(L, -1);
  if (cert.len == 0 && directory.len == 0) {
    push_text(L, pair->certificate);
    push_text(L, pair->key);
    kw_tls_pair_drop(pair);
    return 2;
  }
  bool ok =
      directory.len > 0
          ? kw_tls_pair_write_below(pair, (const char *)directory.data, &failure)
          : kw_tls_pair_write(pair, (const char *)cert.data, (const char *)key.data, &failure);
  kw_tls_pair_drop(pair);
  if (!ok) return kw_tls_push_failure(L, &failure);
  lua_pushboolean(L, 1);
  return 1;
}

void kw_tls_add_pairs(lua_State *L) {
  static const luaL_Reg functions[] = {{"self_sign", l_self_sign}, {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", l_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  kw_add_class(L, PAIR_NAME, meta, none);
  luaL_setfuncs(L, functions, 0);
}
