/* SPDX-License-Identifier: MIT
 *
 * neovim: runs Neovim on LuaJIT even if Debian has built it with PUC Lua 5.1, as on some architectures.
 *
 * Preloaded before LuaJIT's library, whose functions then take precedence over those of PUC Lua. Neovim contains some
 * of its modules as bytecode of PUC Lua, which LuaJIT cannot load: this object loads their sources from Neovim's
 * runtime instead.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct lua_State lua_State;
typedef int load_buffer(lua_State *L, const char *bytes, size_t size, const char *name);
typedef int load_file(lua_State *L, const char *path);

int luaL_loadbuffer(lua_State *L, const char *bytes, size_t size, const char *name);

int luaL_loadbuffer(lua_State *L, const char *bytes, size_t size, const char *name) {
  char path[4096];
  if (size < 4 || memcmp(bytes, "\033Lua", 4) != 0) {
    return ((load_buffer *)dlsym(RTLD_NEXT, "luaL_loadbuffer"))(L, bytes, size, name);
  }
  snprintf(path, sizeof path, "/usr/share/nvim/runtime/lua/%s", name[0] == '@' ? name + 1 : name);
  return ((load_file *)dlsym(RTLD_NEXT, "luaL_loadfile"))(L, path);
}
