/* SPDX-License-Identifier: MIT
 *
 * lua_channel: channels in Lua, for drivers in Lua and for specs; a driver in C uses face/tls.h.
 */
#include "tls/binding.h"

#define CHANNEL_NAME "keywatch.tls.channel"
#define CHUNK 16384 /* limit of bytes that `read` returns: one record */

static kw_tls_channel **check_object(lua_State *L) {
  return luaL_checkudata(L, 1, CHANNEL_NAME);
}

static kw_tls_channel *check(lua_State *L) {
  kw_tls_channel **self = check_object(L);
  if (*self == NULL) luaL_error(L, "the channel is closed");
  return *self;
}

kw_tls_channel *kw_tls_check_channel(lua_State *L) {
  return check(L);
}

kw_tls_channel **kw_tls_push_channel(lua_State *L) {
  return kw_new_object(L, CHANNEL_NAME, sizeof(kw_tls_channel *), 0);
}

/* channel:feed(bytes): queues ciphertext; "" is the end of the stream. Returns how many bytes were taken. */
static int l_feed(lua_State *L) {
  size_t len;
  kw_tls_channel *self = check(L);
  luaL_checktype(L, 2, LUA_TSTRING);
  const char *bytes = lua_tolstring(L, 2, &len);
  lua_pushinteger(L, (lua_Integer)kw_tls_channel_feed(self, bytes, len));
  return 1;
}

/* channel:step(): one piece of the handshake. */
static int l_step(lua_State *L) {
  kw_tls_channel_step(check(L));
  return 0;
}

/* Bytes that were taken from a channel. They are pushed in a protected call: if Lua has no memory, they are lost, and
 * the channel fails. */
typedef struct given {
  const char *bytes;
  size_t len;
} given;

static int push_given(lua_State *L) {
  const given *it = lua_touserdata(L, 1);
  lua_pushlstring(L, it->bytes, it->len);
  return 1;
}

/* Returns the bytes at index 2, if any, without the first ones, whose number is at index 3. */
static kw_tls_input check_input(lua_State *L, size_t *used) {
  size_t len = 0;
  const char *bytes = "";
  lua_Number skipped = luaL_optnumber(L, 3, 0);
  if (!lua_isnil(L, 2)) {
    luaL_checktype(L, 2, LUA_TSTRING);
    bytes = lua_tolstring(L, 2, &len);
  }
  luaL_argcheck(L, skipped >= 0 && skipped <= (lua_Number)len, 3, "must be from 0 to #bytes");
  *used = (size_t)skipped;
  return (kw_tls_input){(const uint8_t *)bytes + *used, len - *used};
}

/* channel:read(bytes, used): at most one record of plaintext; "" if the next record has none, or is incomplete: call
 * again while the state has may_read. Reads fed bytes first; then, if given, `bytes` without the first `used` ones, and
 * without queuing them. Returns the plaintext, and how many of the bytes are used now. */
static int l_read(lua_State *L) {
  char bytes[CHUNK];
  given it = {bytes, 0};
  size_t used;
  lua_settop(L, 3);
  kw_tls_input input = check_input(L, &used);
  size_t before = input.len;
  lua_pushcfunction(L, push_given);
  lua_pushlightuserdata(L, &it);
  it.len = kw_tls_channel_read_from(check(L), &input, bytes, sizeof bytes);
  int rc = lua_pcall(L, 1, 1, 0);
  if (rc == 0) {
    lua_pushinteger(L, (lua_Integer)(used + before - input.len));
    return 2;
  }
  kw_tls_channel **self = check_object(L);
  if (*self != NULL) kw_tls_channel_lose(*self);
  return lua_error(L);
}

/* channel:write(bytes): encrypts. Returns how many bytes were taken. */
static int l_write(lua_State *L) {
  size_t len;
  kw_tls_channel *self = check(L);
  luaL_checktype(L, 2, LUA_TSTRING);
  const char *bytes = lua_tolstring(L, 2, &len);
  lua_pushinteger(L, (lua_Integer)kw_tls_channel_write(self, bytes, len));
  return 1;
}

/* channel:pending(): takes the ciphertext that has to be written from the channel; "" if there is none. */
static int l_pending(lua_State *L) {
  struct iovec piece = {NULL, 0};
  kw_tls_channel_pending(check(L), &piece, 1);
  size_t len = piece.iov_len;
  lua_settop(L, 1);
  char *copy = lua_newuserdatauv(L, len + 1, 0);
  given it = {copy, 0};
  lua_pushcfunction(L, push_given);
  lua_pushlightuserdata(L, &it);
  kw_tls_channel *self = check(L); /* a finalizer may have taken bytes, or closed the channel */
  piece.iov_len = 0;
  kw_tls_channel_pending(self, &piece, 1);
  it.len = kw_min_size(len, piece.iov_len);
  if (it.len > 0) memcpy(copy, piece.iov_base, it.len);
  kw_tls_channel_wrote(self, it.len);
  if (lua_pcall(L, 1, 1, 0) == 0) return 1;
  if (*check_object(L) != NULL) kw_tls_channel_lose(*check_object(L));
  return lua_error(L);
}

static int push_flag(lua_State *L, unsigned state, unsigned bit, const char *name) {
  lua_pushboolean(L, (state & bit) != 0);
  lua_setfield(L, -2, name);
  return 1;
}

/* channel:state(): a table of booleans. */
static int l_state(lua_State *L) {
  check_object(L);
  lua_createtable(L, 0, 7);
  unsigned state = kw_tls_channel_state(check(L));
  push_flag(L, state, KW_TLS_WANTS_BYTES, "wants_bytes");
  push_flag(L, state, KW_TLS_HAS_WORK, "has_work");
  push_flag(L, state, KW_TLS_IS_OPEN, "is_open");
  push_flag(L, state, KW_TLS_MAY_READ, "may_read");
  push_flag(L, state, KW_TLS_WANTS_TEXT, "wants_text");
  push_flag(L, state, KW_TLS_GOT_END, "got_end");
  return push_flag(L, state, KW_TLS_IS_DONE, "is_done");
}

/* channel:error(): text and kind of the failure; or nothing. */
static int l_error(lua_State *L) {
  kw_tls_failure failure = *kw_tls_channel_failure(check(L));
  if (failure.fault == KW_TLS_NONE) return 0;
  kw_tls_push_failure(L, &failure);
  lua_remove(L, -3);
  return 2;
}

static void set_text(lua_State *L, const char *text, const char *name) {
  lua_pushstring(L, text);
  lua_setfield(L, -2, name);
}

/* Sets the list of the texts behind the first one. */
static void set_organizations(lua_State *L, const char *names, const char *end) {
  const char *at = names + strlen(names) + 1;
  lua_newtable(L);
  for (int i = 1; at < end; i++, at += strlen(at) + 1) {
    lua_pushstring(L, at);
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, -2, "organizations");
}

/* channel:info(): a table of what the two sides have agreed on; or nothing before the end of the handshake. Checks the
 * channel again after each push, since a finalizer may have closed it. */
static int l_info(lua_State *L) {
  check(L);
  lua_settop(L, 1);
  lua_createtable(L, 0, 6);
  if ((kw_tls_channel_state(check(L)) & KW_TLS_IS_OPEN) == 0) return 0;
  set_text(L, kw_tls_channel_info(check(L)).version, "version"); /* static */
  set_text(L, kw_tls_channel_info(check(L)).suite, "cipher_suite");
  lua_pushboolean(L, kw_tls_channel_info(check(L)).is_resumed);
  lua_setfield(L, -2, "is_resumed");
  lua_pushboolean(L, kw_tls_channel_has_h2(check(L)));
  lua_setfield(L, -2, "has_h2");
  char text[KW_TLS_NAME] = "";
  const char *name = kw_tls_channel_info(check(L)).name;
  if (name != NULL) strncpy(text, name, sizeof text - 1);
  if (name != NULL) set_text(L, text, "server_name");
  char names[KW_TLS_IDENTITY];
  size_t len;
  const char *identity = kw_tls_channel_identity(check(L), &len);
  if (identity == NULL) return 1;
  memcpy(names, identity, len);
  if (names[0] != 0) set_text(L, names, "common_name");
  set_organizations(L, names, names + len);
  return 1;
}

/* channel:finish(): ends the channel with close_notify. */
static int l_finish(lua_State *L) {
  kw_tls_channel_finish(check(L));
  return 0;
}

/* channel:close() */
static int l_close(lua_State *L) {
  kw_tls_channel **self = check_object(L);
  kw_tls_channel *channel = *self;
  *self = NULL;
  if (channel != NULL) kw_tls_channel_close(channel);
  return 0;
}

void kw_tls_add_channels(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"feed", l_feed},       {"step", l_step},   {"read", l_read},
      {"write", l_write},     {"state", l_state}, {"error", l_error},
      {"pending", l_pending}, {"info", l_info},   {"finish", l_finish},
      {"close", l_close},     {NULL, NULL}};
  kw_add_class(L, CHANNEL_NAME, meta, methods);
}
