/* SPDX-License-Identifier: MIT
 *
 * core: the module keywatch.core.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/sha1.h"
#include "bind/lua_answer.h"
#include "bind/lua_client.h"
#include "bind/lua_error.h"
#include "bind/lua_message.h"
#include "bind/lua_password.h"
#include "bind/lua_peer.h"
#include "bind/lua_request.h"
#include "bind/lua_server.h"
#include "bind/lua_snapshot.h"
#include "bind/lua_store.h"
#include "bind/lua_subscription.h"
#include "bind/lua_value.h"
#include "bind/lua_watch.h"
#include "face/module.h"
#include "model/error.h"

#ifdef KW_PROBE
#include "bind/probe.h"
#endif

int KW_EXPORT luaopen_keywatch_core(lua_State *L);

/* errors[code] = { message =, grpc_status = }, for those who meet them elsewhere. */
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

/* core.id(value): an id in the form that this VM gives it, or nothing if the value is none. */
static int l_id(lua_State *L) {
  int64_t id;
  if (!kw_bind_to_id(L, 1, &id)) return 0;
  kw_bind_push_id(L, id);
  return 1;
}

/* core.decimal(value): 64 bits without a sign, in whichever form, as a decimal string; or nothing if the value is
 * none. */
static int l_decimal(lua_State *L) {
  uint64_t v;
  if (!kw_bind_to_uint(L, 1, &v)) return 0;
  kw_bind_push_decimal(L, v);
  return 1;
}

/* core.hex(id): an id in hexadecimal, with its sign, as etcd's names have it; or nothing if the value is none. */
static int l_hex(lua_State *L) {
  char text[24];
  int64_t id;
  if (!kw_bind_to_id(L, 1, &id)) return 0;
  uint64_t size = id < 0 ? -(uint64_t)id : (uint64_t)id;
  snprintf(text, sizeof text, "%s%" PRIx64, id < 0 ? "-" : "", size);
  lua_pushstring(L, text);
  return 1;
}

static pid_t
    pid; /* of this process: asked for often, and a call of the system where it is not remembered */

static void note_pid(void) {
  pid = getpid();
}

/* core.pid(): of this process. */
static int l_pid(lua_State *L) {
  lua_pushinteger(L, pid);
  return 1;
}

/* core.sha1(bytes): the digest, 20 bytes. */
static int l_sha1(lua_State *L) {
  uint8_t digest[KW_SHA1_BYTES];
  kw_sha1(kw_bind_check_bytes(L, 1), digest);
  lua_pushlstring(L, (const char *)digest, sizeof digest);
  return 1;
}

int luaopen_keywatch_core(lua_State *L) {
  kw_check_vm(L);
  kw_pin((void *)luaopen_keywatch_core);
  if (pid == 0) pthread_atfork(NULL, NULL, note_pid);
  note_pid();
  lua_newtable(L);
  kw_bind_push_store(L);
  lua_setfield(L, -4, "durable_methods");
  lua_setfield(L, -3, "store_methods");
  lua_setfield(L, -2, "open");
  push_errors(L);
  lua_setfield(L, -2, "errors");
  kw_bind_add_watch_class(L);
  kw_bind_add_snapshot_class(L);
  kw_bind_add_holder(L);
  kw_bind_push_client(L);
  lua_setfield(L, -2, "client");
  kw_bind_push_subscription(L);
  lua_setfield(L, -2, "subscription");
  kw_bind_push_serve(L);
  lua_setfield(L, -2, "serve");
  kw_bind_push_error_new(L);
  lua_setfield(L, -2, "new_error");
  kw_bind_push_error_of(L);
  lua_setfield(L, -2, "error_of");
  kw_bind_push_requests(L);
  lua_setfield(L, -2, "requests");
  kw_bind_push_answers(L);
  lua_setfield(L, -2, "answers");
  lua_pushcfunction(L, kw_bind_header);
  lua_setfield(L, -2, "header");
  kw_bind_push_restore(L);
  lua_setfield(L, -2, "restore");
  kw_bind_add_messages(L);
  lua_pushcfunction(L, l_id);
  lua_setfield(L, -2, "id");
  lua_pushcfunction(L, l_decimal);
  lua_setfield(L, -2, "decimal");
  lua_pushcfunction(L, l_hex);
  lua_setfield(L, -2, "hex");
  lua_pushcfunction(L, l_pid);
  lua_setfield(L, -2, "pid");
  lua_pushcfunction(L, l_sha1);
  lua_setfield(L, -2, "sha1");
  lua_pushcfunction(L, kw_bind_hash_password);
  lua_setfield(L, -2, "hash_password");
  lua_pushliteral(L, KW_LUA_NAME);
  lua_setfield(L, -2, "built_for");
#ifdef KW_PROBE
  kw_bind_push_probe(L);
  lua_setfield(L, -2, "probe");
#endif
  return 1;
}
