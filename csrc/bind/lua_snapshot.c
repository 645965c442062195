/* SPDX-License-Identifier: MIT */
#include "bind/lua_snapshot.h"

#include "base/sha256.h"
#include "bind/lua_error.h"
#include "bind/lua_result.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "store/restore.h"
#include "store/snapshot.h"

#define SNAPSHOT_NAME "keywatch.core.snapshot"
#define MAX_READ (1 << 20) /* bytes that are read at once */

typedef struct lua_snapshot {
  kw_snapshot *snapshot; /* NULL: closed */
} lua_snapshot;

static kw_snapshot *check_snapshot(lua_State *L) {
  lua_snapshot *self = luaL_checkudata(L, 1, SNAPSHOT_NAME);
  if (self->snapshot == NULL) luaL_error(L, "the snapshot is closed");
  return self->snapshot;
}

/* Pushes nil and an error, with the text as its message unless the text is empty. */
static int fail(lua_State *L, int rc, const char *text) {
  kw_bind_push_error_meta(L);
  kw_bind_push_failure(L, lua_gettop(L), rc);
  kw_bind_set_message(L, text);
  return 2;
}

static int l_open_snapshot(lua_State *L) {
  lua_snapshot *self = kw_new_object(L, SNAPSHOT_NAME, sizeof *self, 0);
  char text[KW_REASON_ROOM] = "";
  int rc = kw_snapshot_open(kw_bind_enter(L)->store, &self->snapshot, text);
  return rc == KW_OK ? 1 : fail(L, rc, text);
}

static int l_is_ready(lua_State *L) {
  kw_snapshot *snapshot = check_snapshot(L);
  bool is_ready = kw_snapshot_is_ready(snapshot);
  char text[KW_REASON_ROOM] = "";
  int rc = is_ready ? kw_snapshot_outcome(snapshot, text) : KW_OK;
  if (rc != KW_OK) return fail(L, rc, text);
  lua_pushboolean(L, is_ready);
  return 1;
}

/* Raises if the snapshot is not ready, or has failed. */
static kw_snapshot *check_ready(lua_State *L) {
  kw_snapshot *snapshot = check_snapshot(L);
  char text[KW_REASON_ROOM];
  if (!kw_snapshot_is_ready(snapshot) || kw_snapshot_outcome(snapshot, text) != KW_OK)
    luaL_error(L, "the snapshot is not ready");
  return snapshot;
}

static int l_size(lua_State *L) {
  kw_bind_push_int(L, kw_snapshot_size(check_ready(L)));
  return 1;
}

static int l_read(lua_State *L) {
  int64_t at = kw_bind_check_int(L, 2, 0), n = kw_bind_check_int(L, 3, 0);
  luaL_argcheck(L, n <= MAX_READ, 3, "too much at once");
  uint8_t *bytes = lua_newuserdatauv(L, (size_t)n + 1, 0); /* first: it may let finalizers run */
  kw_snapshot *snapshot = check_ready(L);
  int64_t all = kw_snapshot_size(snapshot) + KW_SHA256_BYTES;
  luaL_argcheck(L, at <= all && n <= all - at, 3, "beyond the end");
  char text[KW_REASON_ROOM];
  int rc = kw_snapshot_read(snapshot, at, bytes, (size_t)n, text);
  if (rc != KW_OK) return fail(L, rc, text);
  lua_pushlstring(L, (const char *)bytes, (size_t)n);
  return 1;
}

static int l_close(lua_State *L) {
  lua_snapshot *self = luaL_checkudata(L, 1, SNAPSHOT_NAME);
  if (self->snapshot != NULL) kw_snapshot_close(self->snapshot);
  self->snapshot = NULL;
  return 0;
}

static int l_restore(lua_State *L) {
  const char *path = luaL_checkstring(L, 1), *directory = luaL_checkstring(L, 2);
  char text[KW_REASON_ROOM] = "";
  kw_restored restored;
  int rc = kw_restore(path, directory, lua_toboolean(L, 3), &restored, text);
  if (rc != KW_OK) return fail(L, rc, text);
  lua_createtable(L, 0, 5);
  kw_bind_set_int(L, "revision", restored.revision);
  kw_bind_set_int(L, "compact_revision", restored.compact_revision);
  kw_bind_set_int(L, "records", restored.records);
  kw_bind_set_int(L, "leases", restored.leases);
  kw_bind_set_bool(L, "auth_was_enabled", restored.auth_was_enabled);
  return 1;
}

const luaL_Reg kw_bind_snapshot_methods[] = {{"open_snapshot", l_open_snapshot}, {NULL, NULL}};

static const luaL_Reg methods[] = {
    {"is_ready", l_is_ready}, {"size", l_size}, {"read", l_read}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_add_snapshot_class(lua_State *L) {
  kw_add_class(L, SNAPSHOT_NAME, meta, methods);
}

void kw_bind_push_restore(lua_State *L) {
  lua_pushcfunction(L, l_restore);
}
