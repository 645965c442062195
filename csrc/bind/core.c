/* SPDX-License-Identifier: MIT
 *
 * core: the module keywatch.core, the C half of keywatch.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/process.h"
#include "base/sha1.h"
#include "bind/lua_answer.h"
#include "bind/lua_broadcast.h"
#include "bind/lua_client.h"
#include "bind/lua_content.h"
#include "bind/lua_error.h"
#include "bind/lua_feed_state.h"
#include "bind/lua_inflate.h"
#include "bind/lua_json.h"
#include "bind/lua_target.h"
#include "bind/lua_message.h"
#include "bind/lua_password.h"
#include "bind/lua_peer.h"
#include "bind/lua_read.h"
#include "bind/lua_reply.h"
#include "bind/lua_request.h"
#include "bind/lua_server.h"
#include "bind/lua_snapshot.h"
#include "bind/lua_store.h"
#include "bind/lua_subscription.h"
#include "bind/lua_texts.h"
#include "bind/lua_value.h"
#include "bind/lua_watch.h"
#include "bind/lua_write.h"
#include "face/module.h"
#include "model/error.h"

int KW_EXPORT luaopen_keywatch_core(lua_State *L);

/* Pushes core.errors: errors[code] = { message =, grpc_status = }. */
static void push_errors(lua_State *L) {
  lua_newtable(L);
#define X(name, symbol, status, words)                                                             \
  lua_newtable(L);                                                                                 \
  lua_pushliteral(L, words);                                                                       \
  lua_setfield(L, -2, "message");                                                                  \
  lua_pushinteger(L, status);                                                                      \
  lua_setfield(L, -2, "grpc_status");                                                              \
  lua_setfield(L, -2, symbol);
  KW_ERRORS(X)
#undef X
}

/* core.id(value): the id as this VM represents ids; nothing if the value is not an id. */
static int l_id(lua_State *L) {
  int64_t id;
  if (!kw_bind_to_id(L, 1, &id)) return 0;
  kw_bind_push_id(L, id);
  return 1;
}

/* core.decimal(value): an unsigned 64-bit number as a decimal string; nothing if the value is not such a number. */
static int l_decimal(lua_State *L) {
  uint64_t v;
  if (!kw_bind_to_uint(L, 1, &v)) return 0;
  kw_bind_push_decimal(L, v);
  return 1;
}

/* core.hex(id): the id in hexadecimal with its sign, as in the names that etcd gives; nothing if the value is not an
 * id. */
static int l_hex(lua_State *L) {
  char text[24];
  int64_t id;
  if (!kw_bind_to_id(L, 1, &id)) return 0;
  uint64_t size = id < 0 ? -(uint64_t)id : (uint64_t)id;
  snprintf(text, sizeof text, "%s%" PRIx64, id < 0 ? "-" : "", size);
  lua_pushstring(L, text);
  return 1;
}

/* core.pid(): the id of this process. */
static int l_pid(lua_State *L) {
  lua_pushinteger(L, kw_process_id());
  return 1;
}

/* core.sha1(bytes): the SHA-1 digest, 20 bytes. */
static int l_sha1(lua_State *L) {
  uint8_t digest[KW_SHA1_BYTES];
  kw_sha1(kw_bind_check_bytes(L, 1), digest);
  lua_pushlstring(L, (const char *)digest, sizeof digest);
  return 1;
}

/* PUC Lua 5.1 lacks this function, but must be able to load the module, which then refuses to work. */
#pragma weak lua_isyieldable

/* core.is_yieldable(): true if the caller can be suspended here: in a coroutine, and not inside a function called by
 * C. */
static int l_is_yieldable(lua_State *L) {
  lua_pushboolean(L, lua_isyieldable(L));
  return 1;
}

static const luaL_Reg functions[] = {{"header", kw_bind_header},
                                     {"percent_decode", kw_bind_percent_decode},
                                     {"read_query", kw_bind_read_query},
                                     {"kvs_crc", kw_bind_kvs_crc},
                                     {"hash_password", kw_bind_hash_password},
                                     {"id", l_id},
                                     {"decimal", l_decimal},
                                     {"hex", l_hex},
                                     {"is_yieldable", l_is_yieldable},
                                     {"pid", l_pid},
                                     {"sha1", l_sha1},
                                     {NULL, NULL}};

/* Fields of the module, and the functions that push them. */
static const struct {
  const char *name;
  void (*push)(lua_State *L);
} fields[] = {{"errors", push_errors},
              {"client", kw_bind_push_client},
              {"http_client", kw_bind_push_http_client},
              {"inflater", kw_bind_push_inflater},
              {"subscription", kw_bind_push_subscription},
              {"feed_state", kw_bind_push_feed_state},
              {"content_writer", kw_bind_push_content_writer},
              {"begin_hash", kw_bind_push_begin_hash},
              {"serve", kw_bind_push_serve},
              {"broadcast", kw_bind_push_broadcast},
              {"record", kw_bind_push_record_meta},
              {"new_error", kw_bind_push_error_new},
              {"error_of", kw_bind_push_error_of},
              {"requests", kw_bind_push_requests},
              {"answers", kw_bind_push_answers},
              {"restore", kw_bind_push_restore}};

int luaopen_keywatch_core(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_core);
  lua_newtable(L);
  kw_bind_push_store(L);
  lua_setfield(L, -5, "inner");
  lua_setfield(L, -4, "durable_methods");
  lua_setfield(L, -3, "store_methods");
  lua_setfield(L, -2, "open");
  kw_bind_add_watch_class(L);
  kw_bind_add_snapshot_class(L);
  kw_bind_add_lease_class(L);
  kw_bind_add_read_class(L);
  kw_bind_add_text_class(L);
  kw_bind_add_write_class(L);
  kw_bind_add_holder(L);
  kw_bind_add_messages(L);
  kw_bind_add_json(L);
  for (size_t i = 0; i < KW_LENGTH(fields); i++) {
    fields[i].push(L);
    lua_setfield(L, -2, fields[i].name);
  }
  luaL_setfuncs(L, functions, 0);
  if (kw_module_probe != NULL) kw_module_probe(L);
  return 1;
}
