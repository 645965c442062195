/* SPDX-License-Identifier: MIT
 *
 * tls: opens the module keywatch.tls, and publishes its functions to drivers (face/tls.h). See binding.h.
 */
#include "tls/binding.h"

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
    .identity = kw_tls_channel_identity,
    .has_h2 = kw_tls_channel_has_h2,
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
