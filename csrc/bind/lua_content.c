/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>

#include "bind/lua_content.h"

#include "bind/lua_error.h"
#include "bind/lua_result.h"
#include "bind/lua_value.h"
#include "face/module.h"
#include "store/content_writer.h"
#include "store/replica.h"

#define WRITER_NAME "keywatch.core.content_writer"

typedef struct lua_writer {
  kw_content_writer *writer; /* NULL: closed */
} lua_writer;

/* {====== The writer ====== */

static kw_content_writer *check_writer(lua_State *L, int arg) {
  lua_writer *self = luaL_checkudata(L, arg, WRITER_NAME);
  if (self->writer == NULL) luaL_error(L, "the writer is closed");
  return self->writer;
}

static int fail(lua_State *L, int rc, const char *text) {
  kw_bind_push_error_meta(L);
  kw_bind_push_failure(L, lua_gettop(L), rc);
  kw_bind_set_message(L, text);
  return 2;
}

/* Returns an argument that must be a string that is not empty and has no zero byte. */
static const char *check_path(lua_State *L, int arg) {
  kw_slice path = kw_bind_check_bytes(L, arg);
  luaL_argcheck(L, path.len > 0 && memchr(path.data, 0, path.len) == NULL, arg, "not a path");
  return (const char *)path.data;
}

static int l_content_writer(lua_State *L) {
  const char *path = check_path(L, 1);
  lua_settop(L, 1);
  lua_writer *self = kw_new_object(L, WRITER_NAME, sizeof *self, 0);
  self->writer = kw_content_writer_new(path);
  if (self->writer == NULL) return fail(L, KW_ERR_NO_MEMORY, "");
  return 1;
}

static int push_outcome(lua_State *L, int number) {
  char text[KW_REASON_ROOM];
  if (number == 0) {
    lua_pushboolean(L, 1);
    return 1;
  }
  if (number == ECANCELED) return fail(L, KW_ERR_CANCELLED, "was not written to the end");
  snprintf(text, sizeof text, "cannot be written: %s", strerror(number));
  return fail(L, kw_error_of_errno(number), text);
}

static int l_is_done(lua_State *L) {
  kw_content_writer *writer = check_writer(L, 1);
  if (kw_content_writer_is_done(writer)) return push_outcome(L, kw_content_writer_outcome(writer));
  lua_pushboolean(L, 0);
  return 1;
}

static int l_wait(lua_State *L) {
  kw_content_writer *writer = check_writer(L, 1);
  kw_content_writer_wait(writer);
  return push_outcome(L, kw_content_writer_outcome(writer));
}

static int l_close(lua_State *L) {
  lua_writer *self = luaL_checkudata(L, 1, WRITER_NAME);
  if (self->writer != NULL) kw_content_writer_free(self->writer);
  self->writer = NULL;
  return 0;
}

/* }====== */

/* {====== The replica ====== */

static kw_range check_range(lua_State *L, int arg) {
  return (kw_range){.key = kw_bind_check_bytes(L, arg), .end = kw_bind_check_bytes(L, arg + 1)};
}

static int l_write_content(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_content_writer *writer = check_writer(L, 2);
  kw_range range = check_range(L, 3);
  kw_content_meta meta = {.confirmed_at = kw_bind_check_int(L, 6, 0)};
  luaL_argcheck(L, kw_bind_to_uint(L, 5, &meta.cluster), 5, "not an id");
  if (!kw_content_writer_is_done(writer)) luaL_error(L, "the writer is not done");
  return kw_bind_end(L, self, kw_content_writer_begin(writer, self->store, &range, meta));
}

static int l_hold_content(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_content_writer *writer = check_writer(L, 2);
  int64_t most = kw_bind_check_int(L, 3, 1);
  if (!kw_content_writer_is_holding(writer)) luaL_error(L, "the writer has not begun");
  int rc = kw_content_writer_hold(writer, self->store, (size_t)most);
  if (rc == KW_ERR_REQUEST_TOO_LARGE) return fail(L, rc, "would be larger than 1 GiB");
  if (rc < 0) return fail(L, rc, "");
  lua_pushboolean(L, rc > 0);
  return 1;
}

static int l_load_content(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  const char *path = check_path(L, 2);
  kw_range range = check_range(L, 3);
  char text[KW_REASON_ROOM] = "";
  kw_content content;
  int rc = kw_content_read(path, &range, &content, text);
  if (rc != KW_OK) return fail(L, rc, text);
  rc = kw_replica_use(self->store, KW_REPLICA_LOAD, content.meta.revision, content.kvs, content.n);
  kw_content_meta meta = content.meta;
  kw_content_drop(&content);
  if (rc != KW_OK) return fail(L, rc, "");
  kw_bind_push_decimal(L, meta.cluster);
  kw_bind_push_int(L, meta.confirmed_at);
  return 2;
}

static int l_changed_revision(lua_State *L) {
  kw_lua_store *self = kw_bind_enter_replica(L);
  kw_bind_push_int(L, kw_replica_changed_revision(self->store));
  return 1;
}

/* }====== */

const luaL_Reg kw_bind_content_methods[] = {{"write_content", l_write_content},
                                            {"hold_content", l_hold_content},
                                            {"load_content", l_load_content},
                                            {"changed_revision", l_changed_revision},
                                            {NULL, NULL}};

static const luaL_Reg methods[] = {
    {"is_done", l_is_done}, {"wait", l_wait}, {"close", l_close}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_push_content_writer(lua_State *L) {
  kw_add_class(L, WRITER_NAME, meta, methods);
  lua_pushcfunction(L, l_content_writer);
}
