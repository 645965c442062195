/* SPDX-License-Identifier: MIT
 *
 * exec: the module keywatch.exec. A program that was started by the wrong interpreter replaces itself with the right
 * one. The module may call only functions that PUC Lua 5.1 has, too.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "face/compat.h"

__attribute__((visibility("default"))) int luaopen_keywatch_exec(lua_State *L);

/* exec(program, argument...): replaces the process with the program, which is looked up in PATH unless its name has a
 * slash. Returns only on failure: nil and the reason. */
static int l_exec(lua_State *L) {
  int n = lua_gettop(L);
  luaL_checkstring(L, 1);
  char **argv = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *argv, 0);
  for (int i = 0; i < n; i++) argv[i] = (char *)luaL_checkstring(L, i + 1);
  argv[n] = NULL;
  execvp(argv[0], argv);
  lua_pushnil(L);
  lua_pushstring(L, strerror(errno));
  return 2;
}

int luaopen_keywatch_exec(lua_State *L) {
  lua_pushcclosure(L, l_exec, 0);
  return 1;
}
