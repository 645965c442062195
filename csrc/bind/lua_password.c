/* SPDX-License-Identifier: MIT */
#if __has_include(<crypt.h>)
#include <crypt.h>
#endif

#include "bind/lua_password.h"

#include "bind/lua_value.h"

#define MAX_HASH 128
#define MIN_COST 4
#define MAX_COST 31

#ifdef CRYPT_GENSALT_IMPLEMENTS_AUTO_ENTROPY

/* Returns false if the library has no bcrypt, or memory is short. */
static bool hash(const char *text, unsigned long cost, char found[MAX_HASH]) {
  void *work = NULL;
  int work_size = 0;
  char *salt = crypt_gensalt_ra("$2b$", cost, NULL, 0);
  const char *result = salt == NULL ? NULL : crypt_ra(text, salt, &work, &work_size);
  bool ok = result != NULL && result[0] != '*' && strlen(result) < MAX_HASH; /* '*': failed */
  if (ok) strcpy(found, result);
  free(salt);
  free(work);
  return ok;
}

#else

static bool hash(const char *text, unsigned long cost, char found[MAX_HASH]) {
  (void)text, (void)cost, (void)found;
  return false;
}

#endif

static int fail(lua_State *L, const char *why) {
  lua_pushnil(L);
  lua_pushstring(L, why);
  return 2;
}

int kw_bind_hash_password(lua_State *L) {
  char found[MAX_HASH];
  kw_slice text = kw_bind_check_bytes(L, 1);
  int64_t cost = kw_bind_check_int(L, 2, MIN_COST);
  luaL_argcheck(L, cost <= MAX_COST, 2, "too high");
  if (memchr(text.data, 0, text.len) != NULL)
    return fail(L, "keywatch: a password must not have a zero byte");
  if (!hash((const char *)text.data, (unsigned long)cost, found)) /* Lua's strings end with a 0 */
    return fail(L, "keywatch: the system's libcrypt makes no bcrypt hashes");
  lua_pushstring(L, found);
  return 1;
}
