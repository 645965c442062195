/* SPDX-License-Identifier: MIT */
#include "bind/lua_read.h"

#include "bind/lua_op.h"
#include "bind/lua_result.h"
#include "bind/lua_store.h"
#include "face/module.h"
#include "store/read.h"

#define READ_NAME "keywatch.core.read"
#define READ_VISITS                                                                                \
  (KW_WORK_TURN / 4) /* for one turn: making the tables of the kvs takes longer than the visits */

typedef struct lua_read {
  kw_read read;
  kw_blob *bytes;   /* the requested key and end; the op's slices point into it. NULL: closed */
  int64_t revision; /* of the result */
  size_t n;         /* kvs in the list */
} lua_read;

static kw_work work_of_turn(void) {
  return (kw_work){.left = READ_VISITS};
}

/* Sets the store's reply to that of a read, without the kvs. */
static void set_reply(kw_lua_store *self, const kw_read *read, int64_t revision) {
  kw_reply *reply = &self->reply;
  reply->kind = KW_OP_RANGE;
  reply->revision = revision;
  reply->range.count = read->count;
  reply->range.more = read->more;
  reply->range.keys_only = read->op.keys_only;
}

/* Answers a range for which one turn is enough, or returns false. */
static int try_answer(lua_State *L, kw_lua_store *self, int rc, kw_answer kind) {
  kw_work work = work_of_turn();
  if (rc == KW_OK)
    rc = kw_store_apply_within(self->store, &self->op, SIZE_MAX, &work, &self->arena, &self->reply);
  if (rc != KW_ONLY_READS) return kw_bind_answer(L, self, rc, kind);
  lua_pushboolean(L, false);
  return 1;
}

static int l_try_range(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_bind_read_range_op(L, &self->arena, &self->op, NULL);
  return try_answer(L, self, rc, KW_ANSWER_REPLY);
}

static int l_try_page(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  luaL_checktype(L, 4, LUA_TTABLE);
  luaL_checkstack(L, 4, "answer");
  int rc = kw_bind_read_range_op(L, &self->arena, &self->op, NULL);
  lua_settop(L, 4);
  lua_insert(L, 2); /* where the answer expects the list */
  return try_answer(L, self, rc, KW_ANSWER_PAGE);
}

/* {====== Reads ====== */

static lua_read *check_read(lua_State *L, int arg) {
  lua_read *self = luaL_checkudata(L, arg, READ_NAME);
  luaL_argcheck(L, self->bytes != NULL, arg, "the read is closed");
  return self;
}

static void close_read(lua_read *self) {
  if (self->bytes == NULL) return;
  kw_read_drop(&self->read);
  kw_blob_release(self->bytes);
  self->bytes = NULL;
}

static int begin(kw_lua_store *store, lua_read *self, const kw_range_op *op) {
  self->n = 0;
  self->revision = kw_store_revision(store->store);
  return kw_read_begin(store->store, &self->read, op, &store->arena);
}

/* Begins to read the op of the store. Copies the bytes that the op borrows from Lua. */
static int open_read(kw_lua_store *store, lua_read *self) {
  kw_range_op op = store->op.range;
  self->bytes = kw_blob_new(op.range.key.len + op.range.end.len);
  if (self->bytes == NULL) return KW_ERR_NO_MEMORY;
  op.range = kw_range_copy(&op.range, self->bytes->bytes);
  return begin(store, self, &op);
}

static int l_open_read(lua_State *L) {
  lua_settop(L, 3);
  lua_read *self = kw_new_object(L, READ_NAME, sizeof *self, 0);
  kw_lua_store *store = kw_bind_enter(L);
  int rc = kw_bind_read_range_op(L, &store->arena, &store->op, NULL);
  if (rc == KW_OK) rc = open_read(store, self);
  return rc == KW_OK ? 1 : kw_bind_fail(L, store, rc);
}

/* Restarts a read whose revision was compacted. Returns KW_OK or an error. If the caller has asked for this revision,
 * that is an error, too. */
static int restart(kw_lua_store *store, lua_read *self) {
  kw_range_op op = self->read.op;
  if (op.revision > 0) return KW_ERR_COMPACTED;
  kw_read_drop(&self->read);
  self->read = (kw_read){0};
  return begin(store, self, &op);
}

static int l_read_more(lua_State *L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_read *self = check_read(L, 3);
  kw_lua_store *store = kw_bind_to_store(L, 1);
  if (store->store == NULL) return kw_bind_fail(L, store, KW_ERR_CLOSED);
  kw_bind_enter(L);
  luaL_checkstack(L, 4, "answer");
  kw_work work = lua_toboolean(L, 4) ? kw_work_without_end() : work_of_turn();
  kw_records *page = &store->reply.range.kvs;
  int rc = kw_read_step(store->store, &self->read, &store->arena, &work, page);
  if (rc == KW_ERR_COMPACTED && (rc = restart(store, self)) == KW_OK) {
    lua_pushboolean(L, false);
    lua_pushboolean(L, true);
    return 2;
  }
  if (rc < 0) return kw_bind_fail(L, store, rc);
  set_reply(store, &self->read, self->revision);
  store->first = self->n;
  store->is_last = rc == KW_OK;
  self->n += page->n;
  if (rc == KW_OK) close_read(self);
  return kw_bind_answer(L, store, KW_OK, KW_ANSWER_KVS);
}

static int l_close(lua_State *L) {
  close_read(luaL_checkudata(L, 1, READ_NAME));
  return 0;
}

/* }====== */

const luaL_Reg kw_bind_read_methods[] = {{"try_range", l_try_range},
                                         {"try_page", l_try_page},
                                         {"open_read", l_open_read},
                                         {"read_more", l_read_more},
                                         {NULL, NULL}};

static const luaL_Reg methods[] = {{"close", l_close}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_close}, {NULL, NULL}};

void kw_bind_add_read_class(lua_State *L) {
  kw_add_class(L, READ_NAME, meta, methods);
}
