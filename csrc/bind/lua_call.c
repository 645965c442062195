/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "bind/lua_call.h"

#include "bind/lua_error.h"
#include "bind/lua_fields.h"
#include "bind/lua_peer.h"
#include "bind/lua_scratch.h"
#include "bind/lua_server.h"
#include "bind/lua_value.h"
#include "http/target.h"
#include "rpc/call.h"
#include "rpc/fixed_answer.h"
#include "rpc/hosts.h"
#include "rpc/request.h"

enum { UP_SCRATCH = 1 }; /* the upvalues */

static kw_lua_server *check_server(lua_State *L) {
  return luaL_checkudata(L, 1, KW_SERVER_NAME);
}

/* Returns NULL if the server is closed, and so has no calls. */
static kw_server *server_of(lua_State *L) {
  kw_lua_server *self = check_server(L);
  return self->is_open ? self->server : NULL;
}

static kw_server *check_open(lua_State *L) {
  kw_server *server = server_of(L);
  if (server == NULL) luaL_error(L, "the server is closed");
  return server;
}

static uint64_t check_id(lua_State *L) {
  return (uint64_t)kw_bind_check_int(L, 2, 0);
}

static kw_call_kind kind_of(lua_State *L, int arg) {
  if (!lua_toboolean(L, arg)) return KW_CALL_UNARY;
  return lua_toboolean(L, arg + 1) ? KW_CALL_OF_ONE : KW_CALL_OF_MANY;
}

static int l_mount(lua_State *L) {
  kw_server *server = check_open(L);
  size_t max_request = lua_isnoneornil(L, 5) ? 0 : (size_t)kw_bind_check_int(L, 5, 0);
  const char *path = (const char *)kw_bind_check_bytes(L, 2).data; /* Lua's strings end with a 0 */
  if (!kw_call_mount(server, path, kind_of(L, 3), max_request))
    return luaL_error(L, "not enough memory");
  return 0;
}

static int l_add_host(lua_State *L) {
  kw_server *server = check_open(L);
  if (!kw_hosts_add(server, kw_bind_check_bytes(L, 2))) return luaL_error(L, "not enough memory");
  return 0;
}

static int l_fix_answer(lua_State *L) {
  kw_server *server = check_open(L);
  kw_slice path = kw_bind_check_bytes(L, 2), type = kw_bind_check_bytes(L, 3);
  if (!kw_fixed_answer_add(server, path, type, kw_bind_check_bytes(L, 4)))
    return luaL_error(L, "not enough memory");
  return 0;
}

/* A finalizer may close the server during the call: its methods remain. A method that a finalizer mounts during the
 * call may or may not be listed. */
static int l_methods(lua_State *L) {
  const kw_server *server = check_open(L);
  const char *path, *request;
  size_t at = 0;
  lua_newtable(L);
  while (kw_call_next_method(server, &at, &path, &request)) {
    lua_pushstring(L, path);
    lua_pushstring(L, request);
    lua_rawset(L, -3);
  }
  return 1;
}

static int l_intercept(lua_State *L) {
  kw_call_intercept(check_open(L));
  return 0;
}

static int l_inspect(lua_State *L) {
  kw_call_inspect(check_open(L));
  return 0;
}

static int l_next_news(lua_State *L) {
  kw_server *server = server_of(L);
  unsigned news;
  int status;
  uint64_t id = server == NULL ? 0 : kw_call_next_news(server, &news, &status);
  if (id == 0) return 0;
  kw_bind_push_int(L, (int64_t)id);
  lua_pushboolean(L, news & KW_CALL_NEWS_OPEN);
  lua_pushboolean(L, news & KW_CALL_NEWS_INPUT);
  lua_pushboolean(L, news & KW_CALL_NEWS_ROOM);
  if (news & KW_CALL_NEWS_END) {
    lua_pushinteger(L, status);
  } else {
    lua_pushnil(L);
  }
  return 5;
}

static int l_newest_call(lua_State *L) {
  const kw_server *server = server_of(L);
  kw_bind_push_int(L, server == NULL ? 0 : (int64_t)kw_call_newest(server));
  return 1;
}

static void push_identity(lua_State *L, const kw_blob *identity) {
  if (identity == NULL) {
    lua_pushnil(L);
  } else {
    kw_bind_push_fields(L, kw_blob_slice(identity));
  }
}

/* Finalizers may run during the pushes and end the call, so its metadata and identity are retained, and its address is
 * copied. */
static int l_info(lua_State *L) {
  uint64_t id = check_id(L);
  int64_t now = kw_bind_opt_now(L, 3);
  kw_blob **holder = kw_bind_new_holder(L), **identity = kw_bind_new_holder(L);
  kw_server *server = server_of(L);
  kw_call_info info;
  if (server == NULL || !kw_call_get_info(server, id, &info)) return 0;
  char remote[KW_REMOTE_TEXT];
  snprintf(remote, sizeof remote, "%s", info.remote);
  *holder = kw_blob_retain(info.metadata);
  *identity = info.identity == NULL ? NULL : kw_blob_retain(info.identity);
  int64_t left = info.deadline == INT64_MAX ? INT64_MAX : info.deadline - now;
  lua_pushstring(L, info.path);
  lua_pushboolean(L, !info.is_unary);
  lua_pushboolean(L, info.is_intercepted);
  lua_pushstring(L, remote);
  if (kw_bind_push_deadline(L, left) == 0) lua_pushnil(L);
  kw_bind_push_fields(L, kw_blob_slice(*holder));
  push_identity(L, *identity);
  return 7;
}

/* What l_head pushes. Finalizers may run during the pushes and end the call, so it is copied. */
typedef struct head {
  kw_slice metadata;
  kw_slice remote;
  kw_slice identity; /* without data: there is none */
  bool is_misdirected;
} head;

/* Replaces bytes by a copy. Returns false if memory is short. */
static bool keep(kw_arena *scratch, kw_slice *bytes) {
  if (bytes->data == NULL) return true;
  uint8_t *to = kw_arena_alloc(scratch, bytes->len);
  if (to == NULL) return false;
  memcpy(to, bytes->data, bytes->len);
  bytes->data = to;
  return true;
}

static bool keep_head(kw_arena *scratch, const kw_call_info *info, head *to) {
  *to = (head){.metadata = kw_blob_slice(info->metadata),
               .remote = kw_slice_text(info->remote),
               .is_misdirected = info->is_misdirected};
  if (info->identity != NULL) to->identity = kw_blob_slice(info->identity);
  return keep(scratch, &to->metadata) && keep(scratch, &to->remote) && keep(scratch, &to->identity);
}

/* Returns the value of field `n` of metadata. The first four are those of rpc/request.h. */
static kw_slice value_of(kw_slice metadata, int n) {
  const char *at = (const char *)metadata.data;
  for (int i = 0; i < 2 * n + 1; i++) at += strlen(at) + 1;
  return kw_slice_text(at);
}

static int push_head(lua_State *L, const head *from) {
  kw_slice path, query;
  kw_path_split(value_of(from->metadata, 3), &path, &query);
  kw_bind_push_slice(L, value_of(from->metadata, 0));
  kw_bind_push_slice(L, path);
  kw_bind_push_slice(L, from->metadata);
  kw_bind_push_slice(L, from->remote);
  lua_pushboolean(L, from->is_misdirected);
  if (from->identity.data == NULL) return 5;
  kw_bind_push_fields(L, from->identity);
  return 6;
}

static int take_head(lua_State *L, kw_arena *scratch, uint64_t id) {
  kw_server *server = server_of(L);
  kw_call_info info;
  head found;
  if (server == NULL || !kw_call_get_info(server, id, &info) || info.path[0] != 0) return 0;
  if (keep_head(scratch, &info, &found)) return push_head(L, &found);
  kw_call_finish(server, id, KW_GRPC_INTERNAL, (kw_slice){0});
  return 0;
}

/* The head of an HTTP request; nothing for another call, or if memory is short: then the request ends. */
static int l_head(lua_State *L) {
  lua_settop(L, 2);
  uint64_t id = check_id(L);
  kw_arena *scratch = kw_bind_take_scratch(L, UP_SCRATCH);
  int n = take_head(L, scratch, id);
  kw_bind_return_scratch(L, UP_SCRATCH, 3);
  return n;
}

static int l_receive(lua_State *L) {
  uint64_t id = check_id(L);
  bool gathers = lua_toboolean(L, 3);
  kw_blob **holder = kw_bind_new_holder(L);
  kw_server *server = server_of(L);
  kw_received received =
      server == NULL ? KW_RECEIVED_NOTHING : kw_call_receive(server, id, gathers, holder);
  switch (received) {
    case KW_RECEIVED_MESSAGE: kw_bind_push_held(L, holder); return 1;
    case KW_RECEIVED_NOTHING: return 0;
    case KW_RECEIVED_ALL: break;
  }
  lua_pushboolean(L, 0);
  return 1;
}

static int l_request(lua_State *L) {
  uint64_t id = check_id(L);
  kw_blob **holder = kw_bind_new_holder(L);
  kw_server *server = server_of(L);
  const char *name;
  size_t max_fields;
  if (server != NULL && kw_server_is_busy(server)) kw_bind_refuse_finalizer(L, "store");
  kw_received received = server == NULL ? KW_RECEIVED_NOTHING
                                        : kw_call_request(server, id, holder, &name, &max_fields);
  if (received == KW_RECEIVED_NOTHING) return 0;
  if (received == KW_RECEIVED_ALL) {
    lua_pushboolean(L, 0);
    return 1;
  }
  lua_pushinteger(L, (lua_Integer)max_fields);
  lua_pushstring(L, name); /* a constant */
  kw_bind_push_held(L, holder);
  lua_insert(L, -3);
  lua_insert(L, -2);
  return 3;
}

static int l_send(lua_State *L) {
  uint64_t id = check_id(L);
  kw_slice message = kw_bind_check_bytes(L, 3);
  kw_server *server = server_of(L);
  bool has_room = false;
  if (server != NULL && !kw_call_send(server, id, message, &has_room))
    return luaL_error(L, "not enough memory");
  lua_pushboolean(L, has_room);
  return 1;
}

static int l_finish(lua_State *L) {
  uint64_t id = check_id(L);
  int64_t status = kw_bind_check_int(L, 3, 0);
  kw_slice text = lua_isnoneornil(L, 4) ? (kw_slice){0} : kw_bind_check_bytes(L, 4);
  kw_server *server = server_of(L);
  luaL_argcheck(L, status <= 16, 3, "a gRPC status expected");
  if (server != NULL) kw_call_finish(server, id, (int)status, text);
  return 0;
}

static int l_answer(lua_State *L) {
  kw_http_field fields[KW_HEAD_FIELDS];
  uint64_t id = check_id(L);
  kw_http_answer answer = {.status = (int)luaL_checkinteger(L, 3), .fields = fields, .length = -1};
  answer.n_fields = kw_bind_check_fields(L, 4, fields);
  bool is_whole = lua_type(L, 5) == LUA_TSTRING;
  kw_slice body = is_whole ? kw_bind_bytes(L, 5) : (kw_slice){0};
  if (is_whole) {
    answer.length = answer.status == 304 ? -1 : (int64_t)body.len; /* 304: that with status 200 */
  } else if (!lua_isnoneornil(L, 5)) {
    answer.length = kw_bind_check_int(L, 5, 0);
  }
  kw_server *server = server_of(L);
  bool is_sent = server == NULL || (is_whole ? kw_request_answer_all(server, id, &answer, body)
                                             : kw_request_answer(server, id, &answer));
  lua_pushboolean(L, is_sent);
  return 1;
}

static int l_proceed(lua_State *L) {
  uint64_t id = check_id(L);
  kw_server *server = server_of(L);
  if (server != NULL && kw_server_is_busy(server)) kw_bind_refuse_finalizer(L, "store");
  if (server != NULL) kw_call_proceed(server, id);
  return 0;
}

static const luaL_Reg methods[] = {{"mount", l_mount},
                                   {"methods", l_methods},
                                   {"intercept", l_intercept},
                                   {"inspect", l_inspect},
                                   {"next_news", l_next_news},
                                   {"info", l_info},
                                   {"head", l_head},
                                   {"receive", l_receive},
                                   {"request", l_request},
                                   {"send", l_send},
                                   {"finish", l_finish},
                                   {"answer", l_answer},
                                   {"add_host", l_add_host},
                                   {"fix_answer", l_fix_answer},
                                   {"newest_call", l_newest_call},
                                   {"proceed", l_proceed},
                                   {NULL, NULL}};

void kw_bind_add_calls(lua_State *L) {
  kw_bind_add_scratch(L);
  lua_pushnil(L);
  luaL_setfuncs(L, methods, UP_SCRATCH);
}
