/* SPDX-License-Identifier: MIT
 *
 * lua_texts: ranges of objects of Kubernetes, as one JSON text. It is made without a Lua string for each object: LuaJIT
 * makes strings that differ only in the middle slowly, since they have the same hash.
 *
 *   core.inner.texts(store, key, opts) -> { revision, count, more, n, text, last }
 *
 * reads a range like the method try_range. `text` has the served texts of its first n objects, with commas between
 * them, and `last` is the key of the last one. If the next object is not plain (codec/object_text.h), the text ends
 * before it, and `more` is true. Returns false if one turn is not enough for the range; or nil and an error.
 */
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"
#include "codec/object_text.h"
#include "store/read.h"

#define TEXT_VISITS (KW_WORK_TURN / 4)

/* Returns the most bytes that the texts of some records take. */
static size_t room_for(const kw_records *kvs) {
  size_t room = 0;
  for (size_t i = 0; i < kvs->n; i++) room += kvs->items[i]->len + KW_OBJECT_TEXT_MORE;
  return room;
}

/* Writes the texts of the first kvs of the reply, as long as they are plain. Returns KW_OK or KW_ERR_NO_MEMORY. */
static int write_texts(kw_lua_store *self) {
  const kw_records *kvs = &self->reply.range.kvs;
  uint8_t *start = kw_arena_alloc(&self->arena, room_for(kvs) + 1), *to = start;
  size_t i = 0;
  if (start == NULL) return KW_ERR_NO_MEMORY;
  for (; i < kvs->n; i++) {
    kw_kv kv = kw_keyvalue_of(kvs->items[i]);
    size_t head = kw_object_text_head(kv.value);
    if (head == 0) break;
    if (i > 0) *to++ = ',';
    to = kw_object_text_write(kv.value, head, kv.mod_revision, to);
  }
  self->text = kw_slice_of(start, (size_t)(to - start));
  self->n_texts = i;
  return KW_OK;
}

void kw_bind_push_texts(lua_State *L, const kw_lua_store *self) {
  const kw_reply *reply = &self->reply;
  size_t n = self->n_texts;
  kw_bind_push_revision(L, reply->revision, 5);
  kw_bind_set_int(L, "count", reply->range.count);
  kw_bind_set_bool(L, "more", reply->range.more || n < reply->range.kvs.n);
  kw_bind_set_int(L, "n", (int64_t)n);
  kw_bind_push_slice(L, self->text);
  lua_setfield(L, -2, "text");
  if (n == 0) return;
  kw_bind_push_slice(L, kw_keyvalue_of(reply->range.kvs.items[n - 1]).key);
  lua_setfield(L, -2, "last");
}

static int l_texts(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  kw_work work = {.left = TEXT_VISITS};
  luaL_checkstack(L, 4, "texts");
  int rc = kw_bind_read_range_op(L, &self->arena, &self->op, NULL);
  if (rc == KW_OK)
    rc = kw_store_apply_within(self->store, &self->op, SIZE_MAX, &work, &self->arena, &self->reply);
  if (rc == KW_ONLY_READS) {
    lua_pushboolean(L, false);
    return 1;
  }
  if (rc == KW_OK) rc = write_texts(self);
  return kw_bind_answer(L, self, rc, KW_ANSWER_TEXTS);
}

const luaL_Reg kw_bind_text_methods[] = {{"texts", l_texts}, {NULL, NULL}};
