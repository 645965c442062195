/* SPDX-License-Identifier: MIT */
#include "bind/lua_list.h"

#include "bind/lua_value.h"

size_t kw_bind_check_list(lua_State *L, int at, const char *name) {
  if (!lua_istable(L, at)) luaL_error(L, "%s must be a list, not a %s", name, luaL_typename(L, at));
  size_t n = lua_rawlen(L, at), found = 0;
  if (at < 0) at = lua_gettop(L) + at + 1;
  lua_pushnil(L);
  while (lua_next(L, at) != 0) {
    int64_t i;
    bool is_element = kw_bind_to_int(L, -2, &i) && i >= 1 && (size_t)i <= n;
    if (!is_element) luaL_error(L, "%s must be a list without holes and names", name);
    found++;
    lua_pop(L, 1);
  }
  if (found != n) luaL_error(L, "%s must be a list without holes and names", name);
  return n;
}

#define MAX_DIGITS 20 /* of a size_t */

/* Returns the name of the element with this number. A long list name is truncated. This runs for each element of a
 * transaction, although only errors show the name, and snprintf would take ten times as long. */
static kw_element_name name_of(const char *list, size_t number) {
  kw_element_name what;
  char digits[MAX_DIGITS], *to = what.text;
  const char *end = to + sizeof what.text - sizeof "[]" - MAX_DIGITS;
  size_t n = 0;
  for (; n == 0 || number > 0; number /= 10) digits[n++] = (char)('0' + number % 10);
  while (*list != 0 && to < end) *to++ = *list++;
  *to++ = '[';
  while (n > 0) *to++ = digits[--n];
  *to++ = ']';
  *to = 0;
  return what;
}

kw_element_name kw_bind_push_element(lua_State *L, const char *name, size_t i) {
  kw_element_name what = name_of(name, i + 1);
  lua_rawgeti(L, -1, (int)i + 1);
  if (!lua_istable(L, -1)) {
    luaL_error(L, "%s must be a table, not a %s", what.text, luaL_typename(L, -1));
  }
  return what;
}
