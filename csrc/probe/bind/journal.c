/* SPDX-License-Identifier: MIT */
#include "probe/bind.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/thread.h"
#include "bind/lua_error.h"
#include "bind/lua_value.h"
#include "disk/journal_segment.h"
#include "face/module.h"
#include "model/error.h"
#include "probe/disk.h"

#define JOURNAL_NAME "keywatch.core.probe.journal"
#define RECOVERED_NAME "keywatch.core.probe.recovered"

typedef struct journal {
  kw_journal *journal; /* NULL: closed */
  kw_commit_group group;
  kw_blob **records; /* that the group borrows */
  size_t n;
  size_t cap;
} journal;

static int push_failure(lua_State *L, int rc, const char *why) {
  kw_bind_push_error_meta(L);
  int n = kw_bind_push_failure(L, lua_gettop(L), rc);
  kw_bind_set_message(L, why);
  return n;
}

static int push_outcome(lua_State *L, int rc) {
  if (rc != KW_OK) return push_failure(L, rc, "");
  lua_pushboolean(L, 1);
  return 1;
}

/* Returns a field of the table at index `at`, which is a whole number, 0 if it is absent. */
static int64_t field(lua_State *L, int at, const char *name) {
  int64_t v = 0;
  lua_getfield(L, at, name);
  if (!lua_isnil(L, -1) && !kw_bind_to_id(L, -1, &v)) luaL_error(L, "%s is not a number", name);
  lua_pop(L, 1);
  return v;
}

/* {====== Changes ====== */

static const char *const kinds[] = {"put",          "remove",  "put_lease",
                                    "remove_lease", "put_row", "remove_row"};

static kw_commit_kind kind_of(lua_State *L, int at) {
  lua_rawgeti(L, at, 1);
  const char *name = lua_tostring(L, -1);
  for (size_t i = 0; name != NULL && i < KW_LENGTH(kinds); i++) {
    if (strcmp(name, kinds[i]) != 0) continue;
    lua_pop(L, 1);
    return (kw_commit_kind)i;
  }
  return (kw_commit_kind)luaL_error(L, "no such kind of a change");
}

static int64_t number_at(lua_State *L, int at, int i) {
  int64_t v;
  lua_rawgeti(L, at, i);
  if (!kw_bind_to_id(L, -1, &v)) luaL_error(L, "no number in a change");
  lua_pop(L, 1);
  return v;
}

static kw_blob *blob_at(lua_State *L, int at, int i) {
  size_t len;
  lua_rawgeti(L, at, i);
  const char *bytes = lua_tolstring(L, -1, &len);
  if (bytes == NULL) luaL_error(L, "no string in a change");
  kw_blob *blob = kw_blob_copy(kw_slice_of(bytes, len));
  if (blob == NULL) luaL_error(L, "no memory");
  lua_pop(L, 1);
  return blob;
}

static void clear(journal *self) {
  kw_commit_group_clear(&self->group);
  while (self->n > 0) kw_blob_release(self->records[--self->n]);
}

static bool add_record(journal *self, kw_revision rev, bool tombstone, kw_blob *record) {
  if (!kw_reserve(&self->records, &self->cap, self->n + 1, sizeof *self->records)) {
    kw_blob_release(record);
    return false;
  }
  self->records[self->n++] = record;
  return kw_commit_group_put(&self->group, rev, tombstone, record);
}

static bool add_row(lua_State *L, journal *self, int at, bool is_put) {
  kw_blob *row = is_put ? blob_at(L, at, 3) : NULL;
  kw_blob *name = blob_at(L, at, 2);
  bool ok = is_put ? kw_commit_group_put_row(&self->group, name, row)
                   : kw_commit_group_remove_row(&self->group, name);
  kw_blob_release(name);
  if (row != NULL) kw_blob_release(row);
  return ok;
}

static bool add_change(lua_State *L, journal *self, int at) {
  kw_commit_group *group = &self->group;
  kw_commit_kind kind = kind_of(L, at);
  if (kind == KW_COMMIT_PUT || kind == KW_COMMIT_REMOVE) {
    kw_revision rev = {number_at(L, at, 2), (uint32_t)number_at(L, at, 3)};
    lua_rawgeti(L, at, 4);
    bool tombstone = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return kind == KW_COMMIT_PUT ? add_record(self, rev, tombstone, blob_at(L, at, 5))
                                 : kw_commit_group_remove(group, rev, tombstone);
  }
  if (kind == KW_COMMIT_PUT_LEASE)
    return kw_commit_group_put_lease(group, number_at(L, at, 2), number_at(L, at, 3));
  if (kind == KW_COMMIT_REMOVE_LEASE)
    return kw_commit_group_remove_lease(group, number_at(L, at, 2));
  return add_row(L, self, at, kind == KW_COMMIT_PUT_ROW);
}

/* Fills the group with the changes of the list at index `at`. */
static void read_changes(lua_State *L, journal *self, int at) {
  clear(self);
  luaL_checktype(L, at, LUA_TTABLE);
  for (int i = 1; i <= (int)lua_rawlen(L, at); i++) {
    lua_rawgeti(L, at, i);
    luaL_checktype(L, lua_gettop(L), LUA_TTABLE);
    if (!add_change(L, self, lua_gettop(L))) luaL_error(L, "no memory");
    lua_pop(L, 1);
  }
}

static void push_change(lua_State *L, const kw_commit_change *c) {
  lua_newtable(L);
  lua_pushstring(L, kinds[c->kind]);
  lua_rawseti(L, -2, 1);
  if (c->kind == KW_COMMIT_PUT_ROW || c->kind == KW_COMMIT_REMOVE_ROW) {
    kw_bind_push_slice(L, kw_blob_slice(c->name));
    lua_rawseti(L, -2, 2);
    if (c->row != NULL) kw_bind_push_slice(L, kw_blob_slice(c->row));
    if (c->row != NULL) lua_rawseti(L, -2, 3);
    return;
  }
  kw_bind_push_id(L, c->main); /* or the id of a lease */
  lua_rawseti(L, -2, 2);
  if (c->kind == KW_COMMIT_REMOVE_LEASE) return;
  kw_bind_push_id(L, c->kind == KW_COMMIT_PUT_LEASE ? c->ttl : c->sub);
  lua_rawseti(L, -2, 3);
  if (c->kind == KW_COMMIT_PUT_LEASE) return;
  lua_pushboolean(L, c->tombstone);
  lua_rawseti(L, -2, 4);
  if (c->kind == KW_COMMIT_PUT) kw_bind_push_slice(L, kw_blob_slice(c->record));
  if (c->kind == KW_COMMIT_PUT) lua_rawseti(L, -2, 5);
}

/* }====== */

/* {====== Writing ====== */

static journal *check_journal(lua_State *L) {
  journal *self = luaL_checkudata(L, 1, JOURNAL_NAME);
  luaL_argcheck(L, self->journal != NULL, 1, "the journal is closed");
  return self;
}

static int l_open(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  kw_journal_options options = {.store_id = (uint64_t)field(L, 2, "store_id"),
                                .epoch = (uint64_t)field(L, 2, "epoch"),
                                .segment_bytes = field(L, 2, "segment_bytes")};
  journal *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (journal){0};
  luaL_getmetatable(L, JOURNAL_NAME);
  lua_setmetatable(L, -2);
  int rc = kw_journal_open(path, &options, &self->journal);
  return rc == KW_OK ? 1 : push_failure(L, rc, "");
}

static int l_append(lua_State *L) {
  journal *self = check_journal(L);
  lua_settop(L, 4);
  read_changes(L, self, 3);
  kw_commit_meta *meta = &self->group.meta;
  *meta = (kw_commit_meta){.sequence = kw_bind_check_int(L, 2, 1), .compact_revision = -1};
  if (!lua_isnil(L, 4)) {
    meta->revision = field(L, 4, "revision");
    meta->compact_revision = field(L, 4, "compact_revision");
    meta->compacted_until = field(L, 4, "compacted_until");
    meta->alarms = field(L, 4, "alarms");
  }
  return push_outcome(L, kw_journal_append(self->journal, &self->group));
}

/* The checkpoint thread of append_beside. */
typedef struct beside {
  kw_journal *journal;
  atomic_llong appended;
  atomic_bool must_end;
} beside;

static void *run_beside(void *ctx) {
  beside *b = ctx;
  while (!b->must_end) {
    if (kw_journal_is_filling(b->journal)) kw_journal_release(b->journal, b->appended);
  }
  return NULL;
}

static int l_append_beside(lua_State *L) {
  journal *self = check_journal(L);
  int64_t first = kw_bind_check_int(L, 2, 1), last = kw_bind_check_int(L, 3, 1), n = 0;
  beside b = {.journal = self->journal};
  pthread_t thread;
  int rc = KW_OK;
  clear(self);
  kw_blob *record = kw_blob_new((size_t)kw_bind_check_int(L, 4, 0));
  if (record == NULL) return luaL_error(L, "no memory");
  memset(record->bytes, 'x', record->len);
  if (!add_record(self, (kw_revision){first, 0}, false, record) ||
      !kw_thread_start(&thread, run_beside, &b))
    return luaL_error(L, "no memory");
  for (int64_t i = first; i <= last && (rc == KW_OK || rc == KW_ERR_NO_SPACE); i += rc == KW_OK) {
    self->group.items[0].main = i;
    self->group.meta = (kw_commit_meta){.sequence = i, .revision = i};
    rc = kw_journal_append(self->journal, &self->group);
    if (rc == KW_OK) b.appended = i - 1;
    n += rc == KW_OK;
  }
  b.must_end = true;
  pthread_join(thread, NULL);
  if (rc != KW_OK) return push_failure(L, rc, "");
  kw_bind_push_int(L, n);
  return 1;
}

static int l_release(lua_State *L) {
  kw_journal_release(check_journal(L)->journal, kw_bind_check_int(L, 2, 0));
  return 0;
}

static int l_is_filling(lua_State *L) {
  lua_pushboolean(L, kw_journal_is_filling(check_journal(L)->journal));
  return 1;
}

static int l_frame_bytes(lua_State *L) {
  journal *self = check_journal(L);
  read_changes(L, self, 2);
  kw_bind_push_int(L, (int64_t)kw_journal_frame_bytes(&self->group));
  return 1;
}

static int l_close(lua_State *L) {
  journal *self = luaL_checkudata(L, 1, JOURNAL_NAME);
  if (self->journal != NULL) kw_journal_close(self->journal);
  self->journal = NULL;
  clear(self);
  kw_commit_group_drop(&self->group);
  kw_free(self->records);
  self->records = NULL;
  self->cap = 0;
  return 0;
}

/* }====== */

/* {====== Recovery ====== */

static int l_drop(lua_State *L) {
  kw_journal_recovered_drop(luaL_checkudata(L, 1, RECOVERED_NAME));
  return 0;
}

static void push_recovered(lua_State *L, const kw_journal_recovered *result) {
  const kw_commit_meta *meta = &result->group.meta;
  lua_newtable(L);
  kw_bind_set_bool(L, "has_files", result->has_files);
  kw_bind_set_int(L, "groups", result->groups);
  kw_bind_set_int(L, "sequence", meta->sequence);
  kw_bind_set_int(L, "revision", meta->revision);
  kw_bind_set_int(L, "compact_revision", meta->compact_revision);
  kw_bind_set_int(L, "compacted_until", meta->compacted_until);
  kw_bind_set_int(L, "alarms", meta->alarms);
  lua_newtable(L);
  for (size_t i = 0; i < result->group.n_items; i++) {
    push_change(L, &result->group.items[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "changes");
}

static int l_recover(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  char why[KW_JOURNAL_WHY_ROOM];
  luaL_checktype(L, 2, LUA_TTABLE);
  kw_journal_expected expected = {.store_id = (uint64_t)field(L, 2, "store_id"),
                                  .epoch = (uint64_t)field(L, 2, "epoch"),
                                  .applied = field(L, 2, "applied"),
                                  .is_closed = field(L, 2, "is_closed") != 0};
  kw_journal_recovered *result = lua_newuserdatauv(L, sizeof *result, 0);
  *result = (kw_journal_recovered){0};
  luaL_getmetatable(L, RECOVERED_NAME);
  lua_setmetatable(L, -2);
  int rc = kw_journal_recover(path, &expected, result, why);
  if (rc != KW_OK) return push_failure(L, rc, why);
  push_recovered(L, result);
  kw_journal_recovered_drop(result);
  return 1;
}

/* }====== */

static int l_skip_flush(lua_State *L) {
  kw_journal_segment_skip_flush(lua_toboolean(L, 1));
  return 0;
}

static const luaL_Reg methods[] = {{"append", l_append},
                                   {"append_beside", l_append_beside},
                                   {"release", l_release},
                                   {"is_filling", l_is_filling},
                                   {"frame_bytes", l_frame_bytes},
                                   {"close", l_close},
                                   {NULL, NULL}};
static const luaL_Reg meta_methods[] = {{"__gc", l_close}, {NULL, NULL}};
static const luaL_Reg recovered_meta[] = {{"__gc", l_drop}, {NULL, NULL}};
static const luaL_Reg none[] = {{NULL, NULL}};
static const luaL_Reg functions[] = {
    {"open", l_open}, {"recover", l_recover}, {"skip_flush", l_skip_flush}, {NULL, NULL}};

void kw_bind_push_probe_journal(lua_State *L) {
  kw_add_class(L, JOURNAL_NAME, meta_methods, methods);
  kw_add_class(L, RECOVERED_NAME, recovered_meta, none);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
}
