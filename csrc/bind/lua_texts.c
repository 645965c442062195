/* SPDX-License-Identifier: MIT */
#include "bind/lua_texts.h"

#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_server.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"
#include "codec/keyvalue.h"
#include "codec/object_text.h"
#include "face/module.h"
#include "rpc/request.h"
#include "store/read.h"

#define TEXT_NAME "keywatch.core.text"
#define TEXT_VISITS (KW_WORK_TURN / 4)

typedef struct lua_text {
  kw_blob *blob; /* NULL: the text was sent, or is closed */
} lua_text;

static lua_text *check_text(lua_State *L, int arg) {
  return luaL_checkudata(L, arg, TEXT_NAME);
}

static void drop(lua_text *text) {
  kw_blob *blob = text->blob;
  text->blob = NULL;
  if (blob != NULL) kw_blob_release(blob);
}

static int l_close(lua_State *L) {
  drop(check_text(L, 1));
  return 0;
}

/* {====== Reading ====== */

/* A plain object of a range. */
typedef struct object {
  kw_slice text;
  size_t head;
  int64_t revision;
} object;

/* Finds the first objects of the reply, as long as they are plain, and until they have `max` bytes. Returns the room
 * for their texts. */
static size_t find_objects(kw_lua_store *self, object *list, size_t max) {
  const kw_records *kvs = &self->reply.range.kvs;
  size_t room = 0, i = 0;
  for (; i < kvs->n && room < max; i++) {
    kw_kv kv = kw_keyvalue_of(kvs->items[i]);
    list[i] = (object){kv.value, kw_object_text_head(kv.value), kv.mod_revision};
    if (list[i].head == 0) break;
    room += 1 + kv.value.len + KW_OBJECT_TEXT_MORE;
  }
  self->n_texts = i;
  return room;
}

/* Writes objects, with commas between them. Returns the end of what was written. */
static uint8_t *write_objects(const object *list, size_t n, uint8_t *to) {
  for (size_t i = 0; i < n; i++) {
    if (i > 0) *to++ = ',';
    to = kw_object_text_write(list[i].text, list[i].head, list[i].revision, to);
  }
  return to;
}

/* Makes the text of the reply. Returns KW_OK or KW_ERR_NO_MEMORY. */
static int make_text(kw_lua_store *self, lua_text *text, kw_slice lead, size_t max) {
  object *list = kw_arena_array(&self->arena, self->reply.range.kvs.n + 1, sizeof *list);
  kw_blob *blob = list == NULL ? NULL : kw_blob_new(lead.len + find_objects(self, list, max));
  if (blob == NULL) return KW_ERR_NO_MEMORY;
  if (lead.len > 0) memcpy(blob->bytes, lead.data, lead.len);
  blob->len = (uint32_t)(write_objects(list, self->n_texts, blob->bytes + lead.len) - blob->bytes);
  text->blob = blob;
  return KW_OK;
}

void kw_bind_push_texts(lua_State *L, const kw_lua_store *self) {
  const kw_reply *reply = &self->reply;
  const lua_text *text = lua_touserdata(L, 2);
  size_t n = self->n_texts, bytes = text->blob == NULL ? 0 : text->blob->len;
  kw_bind_push_revision(L, reply->revision, 6);
  kw_bind_set_int(L, "count", reply->range.count);
  kw_bind_set_bool(L, "more", reply->range.more || n < reply->range.kvs.n);
  kw_bind_set_int(L, "n", (int64_t)n);
  kw_bind_set_int(L, "bytes", (int64_t)bytes);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "text");
  if (n == 0) return;
  kw_bind_push_slice(L, kw_keyvalue_of(reply->range.kvs.items[n - 1]).key);
  lua_setfield(L, -2, "last");
}

static int l_texts(lua_State *L) {
  lua_settop(L, 5);
  kw_slice lead = kw_bind_check_bytes(L, 4);
  size_t max = (size_t)kw_bind_check_int(L, 5, 1);
  lua_text *text = kw_new_object(L, TEXT_NAME, sizeof *text, 0);
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
  if (rc == KW_OK) rc = make_text(self, text, lead, max);
  lua_pushvalue(L, 6);
  lua_replace(L, 2); /* where the answer expects the text */
  return kw_bind_answer(L, self, rc, KW_ANSWER_TEXTS);
}

const luaL_Reg kw_bind_text_methods[] = {{"texts", l_texts}, {NULL, NULL}};

/* }====== */

/* {====== Texts ====== */

static int l_tostring(lua_State *L) {
  const lua_text *text = check_text(L, 1);
  kw_blob *blob = text->blob;
  if (blob == NULL) {
    lua_pushliteral(L, "");
    return 1;
  }
  kw_bind_push_slice(L, kw_blob_slice(blob));
  return 1;
}

static int l_send_text(lua_State *L) {
  kw_lua_server *self = luaL_checkudata(L, 1, KW_SERVER_NAME);
  int64_t id = kw_bind_check_int(L, 2, 0);
  lua_text *text = check_text(L, 3);
  bool has_room = false;
  luaL_argcheck(L, text->blob != NULL, 3, "the text was sent already");
  if (self->is_open) kw_request_send_blob(self->server, (uint64_t)id, text->blob, &has_room);
  drop(text);
  lua_pushboolean(L, has_room);
  return 1;
}

void kw_bind_add_texts(lua_State *L) {
  static const luaL_Reg methods[] = {{"send_text", l_send_text}, {NULL, NULL}};
  luaL_setfuncs(L, methods, 0);
}

void kw_bind_add_text_class(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_close}, {"__tostring", l_tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"close", l_close}, {NULL, NULL}};
  kw_add_class(L, TEXT_NAME, meta, methods);
}

/* }====== */
