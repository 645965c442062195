/* SPDX-License-Identifier: MIT
 *
 * uv: opens the module keywatch.uv. See binding.h.
 */
#include "face/module.h"
#include "uv/binding.h"

int KW_EXPORT luaopen_keywatch_uv(lua_State *L);

int luaopen_keywatch_uv(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_uv);
  lua_newtable(L);
  kw_uv_add_process(L);
  kw_uv_add_loop(L);
  kw_uv_add_handles(L);
  kw_uv_add_listeners(L);
  kw_uv_add_dialer(L);
  kw_uv_add_lookups(L);
  kw_uv_add_signals(L);
  kw_uv_add_bells(L);
  lua_pop(L, 1);
  kw_uv_add_signal_names(L);
  kw_uv_add_threads(L);
  if (kw_module_probe != NULL) kw_module_probe(L);
  return 1;
}
