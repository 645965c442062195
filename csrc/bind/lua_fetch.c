/* SPDX-License-Identifier: MIT */
#include "bind/lua_fetch.h"

#include "bind/lua_client.h"
#include "bind/lua_fields.h"
#include "bind/lua_peer.h"
#include "bind/lua_value.h"
#include "rpc/fetch.h"

/* Returns NULL if the client is closed, or is not an HTTP client. */
static kw_fetches *to_fetches(lua_State *L) {
  kw_client *client = kw_bind_to_client(L, 1);
  return client == NULL ? NULL : kw_client_fetches(client);
}

static kw_fetches *check_fetches(lua_State *L) {
  kw_fetches *fetches = to_fetches(L);
  if (fetches == NULL) luaL_error(L, "the connection is closed, or is not an HTTP connection");
  return fetches;
}

static void touch(lua_State *L) {
  kw_client_touch(kw_bind_to_client(L, 1));
}

static uint64_t check_id(lua_State *L) {
  return (uint64_t)kw_bind_check_int(L, 2, 1);
}

static int l_fetch(lua_State *L) {
  kw_http_field fields[KW_HEAD_FIELDS];
  kw_http_request request = {.method = kw_bind_check_bytes(L, 2),
                             .authority = kw_bind_check_bytes(L, 3),
                             .path = kw_bind_check_bytes(L, 4),
                             .fields = fields};
  request.n_fields = kw_bind_check_fields(L, 5, fields);
  request.length = kw_bind_check_int(L, 6, -1);
  uint64_t id = kw_fetch_begin(check_fetches(L), &request);
  if (id == 0) return 0;
  touch(L);
  kw_bind_push_int(L, (int64_t)id);
  return 1;
}

static int l_write(lua_State *L) {
  bool has_room;
  kw_fetches *fetches = check_fetches(L);
  if (!kw_fetch_write(fetches, check_id(L), kw_bind_check_bytes(L, 3), &has_room)) return 0;
  touch(L);
  lua_pushboolean(L, has_room);
  return 1;
}

static int l_finish(lua_State *L) {
  kw_fetches *fetches = check_fetches(L);
  if (kw_fetch_end(fetches, check_id(L))) touch(L);
  return 0;
}

static int push_head(lua_State *L, const kw_fetched *taken, kw_blob *const *holder) {
  lua_pushliteral(L, "head");
  lua_pushinteger(L, taken->status);
  kw_bind_push_fields(L, kw_blob_slice(*holder));
  return 3;
}

static int push_end(lua_State *L, kw_blob *const *holder) {
  lua_pushliteral(L, "end");
  if (*holder == NULL) return 1;
  kw_bind_push_fields(L, kw_blob_slice(*holder));
  return 2;
}

static int push_closed(lua_State *L, const kw_fetched *taken, kw_blob **holder) {
  static const char *const fates[] = {[KW_FATE_UNANSWERED] = "unanswered",
                                      [KW_FATE_UNPROCESSED] = "unprocessed",
                                      [KW_FATE_ANSWERED] = "answered",
                                      [KW_FATE_MALFORMED] = "malformed"};
  lua_pushliteral(L, "closed");
  if (!taken->has_failed) {
    lua_pushnil(L);
  } else if (*holder == NULL) {
    lua_pushliteral(L, "out of memory");
  } else {
    kw_bind_push_held(L, holder);
  }
  lua_pushstring(L, fates[taken->fate]);
  return 3;
}

static int l_take(lua_State *L) {
  kw_blob **holder = kw_bind_new_holder(L); /* first: it may let finalizers run */
  kw_fetches *fetches = to_fetches(L);
  if (fetches == NULL) return 0;
  kw_fetched taken = kw_fetch_take(fetches, check_id(L));
  *holder = taken.bytes;
  if (taken.kind != KW_FETCHED_NOTHING) touch(L);
  switch (taken.kind) {
    case KW_FETCHED_NOTHING: return 0;
    case KW_FETCHED_HEAD: return push_head(L, &taken, holder);
    case KW_FETCHED_END: return push_end(L, holder);
    case KW_FETCHED_CLOSED: return push_closed(L, &taken, holder);
    case KW_FETCHED_BODY: break;
  }
  lua_pushliteral(L, "body");
  kw_bind_push_held(L, holder);
  return 2;
}

static int l_drop(lua_State *L) {
  kw_fetches *fetches = to_fetches(L);
  uint64_t id = check_id(L);
  if (fetches == NULL) return 0;
  kw_fetch_drop(fetches, id);
  touch(L);
  return 0;
}

static int l_next_fetch(lua_State *L) {
  kw_fetches *fetches = to_fetches(L);
  uint64_t id = fetches == NULL ? 0 : kw_fetch_next_ready(fetches);
  if (id == 0) return 0;
  kw_bind_push_int(L, (int64_t)id);
  return 1;
}

static int l_is_idle(lua_State *L) {
  const kw_fetches *fetches = to_fetches(L);
  lua_pushboolean(L, fetches != NULL && kw_fetches_take_more(fetches));
  if (fetches == NULL || fetches->session == NULL) return 1;
  kw_bind_push_int(L, (int64_t)kw_session_most(fetches->session));
  return 2;
}

static int l_unsent(lua_State *L) {
  const kw_client *client = kw_bind_to_client(L, 1);
  lua_pushnumber(L, client == NULL ? 0 : (lua_Number)kw_client_unsent(client));
  return 1;
}

static int l_moved(lua_State *L) {
  const kw_fetches *fetches = to_fetches(L);
  if (fetches == NULL || fetches->session == NULL) return 0;
  lua_pushnumber(L, (lua_Number)kw_fetch_moved(fetches, check_id(L)));
  return 1;
}

static const luaL_Reg methods[] = {{"fetch", l_fetch},     {"write", l_write},
                                   {"finish", l_finish},   {"take", l_take},
                                   {"drop", l_drop},       {"next_fetch", l_next_fetch},
                                   {"is_idle", l_is_idle}, {"unsent", l_unsent},
                                   {"moved", l_moved},     {NULL, NULL}};

void kw_bind_add_fetches(lua_State *L) {
  luaL_setfuncs(L, methods, 0);
}
