/* SPDX-License-Identifier: MIT
 *
 * lua_process: clocks and limits of the process.
 */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

#define DESCRIPTORS "/proc/self/fd" /* a directory with an entry for each open descriptor */
#define MAX_ENTRIES 4096            /* that are read: more would take milliseconds */

/* Counts the open descriptors by reading the directory. Returns 0 if there are too many. */
static long read_descriptors(void) {
  long n = -3; /* "." and "..", and the descriptor of the directory */
  DIR *directory = opendir(DESCRIPTORS);
  if (directory == NULL) return 0;
  while (n < MAX_ENTRIES && readdir(directory) != NULL) n++;
  closedir(directory);
  return n < MAX_ENTRIES ? n : 0;
}

/* Returns the number of open descriptors, or 0 if it is unknown. From Linux 6.2 on it is the size of the directory. */
static long count_descriptors(void) {
  struct stat info;
  bool is_known = stat(DESCRIPTORS, &info) == 0 && info.st_size > 0;
  return is_known ? (long)info.st_size : read_descriptors();
}

/* descriptors(): the number of open descriptors, and their limit; each is false if it is unknown, or if there is
 * none. */
static int l_descriptors(lua_State *L) {
  const long n = count_descriptors();
  struct rlimit limit;
  bool has_limit = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  lua_pushboolean(L, false);
  lua_pushboolean(L, false);
  if (n > 0) lua_pushinteger(L, (lua_Integer)n);
  if (n > 0) lua_replace(L, -3);
  if (has_limit) lua_pushnumber(L, (lua_Number)limit.rlim_cur);
  if (has_limit) lua_replace(L, -2);
  return 2;
}

void kw_uv_add_process(lua_State *L) {
  static const luaL_Reg functions[] = {{"now", l_now},
                                       {"time", l_time},
                                       {"pid", l_pid},
                                       {"hostname", l_hostname},
                                       {"raise_limit", l_raise_limit},
                                       {"descriptors", l_descriptors},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
