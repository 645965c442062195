/* SPDX-License-Identifier: MIT
 *
 * lua_process: clocks and limits of the process.
 */
#include <sys/resource.h>

#include "base/process.h"
#include "uv/binding.h"

/* now(): seconds of the monotonic clock. */
static int l_now(lua_State *L) {
  lua_pushnumber(L, (lua_Number)uv_hrtime() / 1e9);
  return 1;
}

/* time(): seconds since 1970. */
static int l_time(lua_State *L) {
  uv_timeval64_t time;
  uv_gettimeofday(&time);
  lua_pushnumber(L, (lua_Number)time.tv_sec + (lua_Number)time.tv_usec / 1e6);
  return 1;
}

/* pid(): the id of this process. */
static int l_pid(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)kw_process_id());
  return 1;
}

/* hostname(): the name of this machine; "localhost" if the system has none. */
static int l_hostname(lua_State *L) {
  char name[UV_MAXHOSTNAMESIZE];
  size_t size = sizeof name;
  lua_pushstring(L, uv_os_gethostname(name, &size) == 0 && name[0] != 0 ? name : "localhost");
  return 1;
}

/* raise_limit(): raises the limit of open descriptors as far as allowed. true if that succeeded. */
static int l_raise_limit(lua_State *L) {
  struct rlimit limit;
  bool ok = getrlimit(RLIMIT_NOFILE, &limit) == 0;
  limit.rlim_cur = limit.rlim_max;
  lua_pushboolean(L, ok && setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return 1;
}

void kw_uv_add_process(lua_State *L) {
  static const luaL_Reg functions[] = {{"now", l_now},
                                       {"time", l_time},
                                       {"pid", l_pid},
                                       {"hostname", l_hostname},
                                       {"raise_limit", l_raise_limit},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
