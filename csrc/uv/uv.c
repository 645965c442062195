/* SPDX-License-Identifier: MIT
 *
 * uv: opens the module keywatch.uv. See binding.h.
 */
#include "face/module.h"
#include "uv/binding.h"

#ifdef KW_PROBE
#include "uv/probe_engine.h"
#endif

int KW_EXPORT luaopen_keywatch_uv(lua_State *L);

int luaopen_keywatch_uv(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_uv);
  lua_newtable(L);
  kw_uv_add_process(L);
  kw_uv_add_loop(L);
  kw_uv_add_signal_names(L);
  kw_uv_add_threads(L);
#ifdef KW_PROBE
  kw_uv_push_probe(L);
  lua_setfield(L, -2, "probe");
#endif
  return 1;
}
