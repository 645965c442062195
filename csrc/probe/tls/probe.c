/* SPDX-License-Identifier: MIT
 *
 * probe: the table `probe` of keywatch.tls in builds for tests. "This object" is the shared object keywatch.tls.
 *   live()                how many blocks of this object's memory are allocated
 *   allocations()         how many were made so far
 *   fail_at(n)            makes the n-th allocation of this object from now on fail; 0: none
 *   errors()              empties OpenSSL's queue of errors, and returns how many there were
 *   fault()               leaves an error in the queue, as a host might
 *   renegotiate(channel)  asks the other side for a new handshake (TLS 1.2)
 *   update_keys(channel)  changes the keys, and asks the other side to do so, too (TLS 1.3)
 *   give_ticket(channel)  sends a ticket for a session (TLS 1.3)
 *   without_alpn(channel), with_alpn(channel, protocols)   has a client offer no protocol, or these
 */
#include "probe/mem.h"
#include "probe/tls.h"
#include "tls/binding.h"

static int l_live(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_live());
  return 1;
}

static int l_allocations(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_mem_count());
  return 1;
}

static int l_fail_at(lua_State *L) {
  kw_mem_fail_at((size_t)luaL_checkinteger(L, 1));
  return 0;
}

static int l_errors(lua_State *L) {
  lua_Integer n = 0;
  while (ERR_get_error() != 0) n++;
  lua_pushinteger(L, n);
  return 1;
}

static int l_fault(lua_State *L) {
  (void)L;
  ERR_raise(ERR_LIB_USER, 1);
  return 0;
}

static int l_renegotiate(lua_State *L) {
  SSL *ssl = kw_tls_channel_ssl(kw_tls_check_channel(L));
  SSL_clear_options(ssl, SSL_OP_NO_RENEGOTIATION);
  bool ok = SSL_renegotiate(ssl) == 1;
  SSL_do_handshake(ssl);
  ERR_clear_error();
  lua_pushboolean(L, ok);
  return 1;
}

static int l_update_keys(lua_State *L) {
  SSL *ssl = kw_tls_channel_ssl(kw_tls_check_channel(L));
  bool ok = SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1;
  ERR_clear_error();
  lua_pushboolean(L, ok);
  return 1;
}

static int l_give_ticket(lua_State *L) {
  SSL *ssl = kw_tls_channel_ssl(kw_tls_check_channel(L));
  bool ok = SSL_new_session_ticket(ssl) == 1 && SSL_do_handshake(ssl) == 1;
  ERR_clear_error();
  lua_pushboolean(L, ok);
  return 1;
}

static int l_without_alpn(lua_State *L) {
  SSL_set_alpn_protos(kw_tls_channel_ssl(kw_tls_check_channel(L)), NULL, 0);
  return 0;
}

static int l_with_alpn(lua_State *L) {
  size_t len;
  SSL *ssl = kw_tls_channel_ssl(kw_tls_check_channel(L));
  const char *protocols = luaL_checklstring(L, 2, &len);
  SSL_set_alpn_protos(ssl, (const unsigned char *)protocols, (unsigned)len);
  return 0;
}

static void add_probe(lua_State *L) {
  static const luaL_Reg functions[] = {{"live", l_live},
                                       {"allocations", l_allocations},
                                       {"errors", l_errors},
                                       {"fail_at", l_fail_at},
                                       {"fault", l_fault},
                                       {"renegotiate", l_renegotiate},
                                       {"update_keys", l_update_keys},
                                       {"give_ticket", l_give_ticket},
                                       {"without_alpn", l_without_alpn},
                                       {"with_alpn", l_with_alpn},
                                       {NULL, NULL}};
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  lua_setfield(L, -2, "probe");
}

__attribute__((constructor)) static void register_probe(void) {
  kw_module_probe = add_probe;
}
