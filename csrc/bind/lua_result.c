/* SPDX-License-Identifier: MIT */
#include "bind/lua_result.h"

#include "bind/lua_error.h"
#include "bind/lua_reply.h"
#include "bind/lua_value.h"

/* {====== Without a ticket ====== */

void kw_bind_copy_failure(const kw_lua_store *self, char text[KW_REASON_ROOM]) {
  const char *failure = self->store == NULL ? NULL : kw_store_failure(self->store);
  strcpy(text, failure == NULL ? "" : failure);
}

int kw_bind_fail(lua_State *L, const kw_lua_store *self, int rc) {
  bool is_compacted = rc == KW_ERR_COMPACTED;
  char text[KW_REASON_ROOM];
  int64_t revision =
      is_compacted ? kw_store_compact_revision(self->store) : 0; /* before finalizers run */
  kw_bind_copy_failure(self, text);
  kw_bind_push_failure(L, lua_upvalueindex(KW_UP_ERROR_META), rc);
  if (is_compacted) kw_bind_set_int(L, "compact_revision", revision);
  if (rc == KW_ERR_STORAGE) kw_bind_set_message(L, text);
  return 2;
}

int kw_bind_end(lua_State *L, const kw_lua_store *self, int rc) {
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  lua_pushboolean(L, true);
  return 1;
}

/* }====== */

/* {====== With a ticket ====== */

uint64_t kw_bind_open_ticket(const kw_lua_store *self) {
  uint64_t ticket = kw_store_ticket(self->store);
  return kw_store_is_settled(self->store, ticket) ? 0 : ticket;
}

int kw_bind_give(lua_State *L, uint64_t ticket, int values) {
  if (ticket == 0) return values;
  if (values == 1) lua_pushnil(L);
  lua_pushnumber(L, (lua_Number)ticket);
  return 3;
}

int kw_bind_fail_write(lua_State *L, const kw_lua_store *self, int rc) {
  uint64_t ticket = kw_bind_open_ticket(self);
  return kw_bind_give(L, ticket, kw_bind_fail(L, self, rc));
}

int kw_bind_end_write(lua_State *L, const kw_lua_store *self, int rc) {
  uint64_t ticket = kw_bind_open_ticket(self);
  return kw_bind_give(L, ticket, kw_bind_end(L, self, rc));
}

int kw_bind_give_revision(lua_State *L, const kw_lua_store *self) {
  lua_pushvalue(L, lua_upvalueindex(KW_UP_REVISION));
  kw_bind_push_int(L, kw_store_applied(self->store));
  lua_rawset(L, -3);
  return kw_bind_give(L, kw_bind_open_ticket(self), 1);
}

/* }====== */

/* {====== Answers ====== */

/* Pushes the keys of the rows of one table, sorted. `prefix` is what the names of its rows begin with; the rest of a
 * name is the key. */
static void push_rows(lua_State *L, const kw_rows *rows, kw_slice prefix) {
  size_t at = kw_rows_seek(rows, prefix);
  lua_newtable(L);
  for (int i = 1; at < rows->n; i++, at++) {
    kw_slice name = kw_blob_slice(rows->items[at].name);
    if (!kw_slice_begins(name, prefix)) return;
    kw_bind_push_slice(L, kw_slice_of(name.data + prefix.len, name.len - prefix.len));
    lua_rawseti(L, -2, i);
  }
}

static void push_row(lua_State *L, const kw_row *row) {
  if (row == NULL) {
    lua_pushnil(L);
  } else {
    kw_bind_push_slice(L, kw_blob_slice(row->bytes));
  }
}

static void push_kvs(lua_State *L, const kw_lua_store *self) {
  kw_bind_add_kvs(L, &self->reply, 2, self->first);
  if (self->is_last) {
    kw_bind_push_range_of(L, &self->reply, 2, self->first + self->reply.range.kvs.n);
  } else {
    lua_pushboolean(L, false);
  }
}

int kw_bind_push_answer(lua_State *L) {
  const kw_lua_store *self = lua_touserdata(L, 1);
  switch (self->answer) {
    case KW_ANSWER_REPLY: kw_bind_push_reply(L, &self->op, &self->reply); break;
    case KW_ANSWER_PAGE: kw_bind_push_page(L, &self->op, &self->reply, 2); break;
    case KW_ANSWER_KVS: push_kvs(L, self); break;
    case KW_ANSWER_GET: kw_bind_push_get(L, &self->reply, 2); break;
    case KW_ANSWER_TEXTS: kw_bind_push_texts(L, self); break;
    case KW_ANSWER_ROWS: push_rows(L, self->rows, self->row_name); break;
    case KW_ANSWER_ROW: push_row(L, kw_rows_find(self->rows, self->row_name)); break;
  }
  return 1;
}

/* True for a plain read. It sees only what is durable. */
static bool is_read(const kw_lua_store *self, kw_answer kind) {
  return kind == KW_ANSWER_GET || kind == KW_ANSWER_PAGE || kind == KW_ANSWER_KVS ||
         kind == KW_ANSWER_TEXTS || (kind == KW_ANSWER_REPLY && kw_store_only_reads(&self->op));
}

int kw_bind_answer(lua_State *L, kw_lua_store *self, int rc, kw_answer kind) {
  if (rc != KW_OK)
    return is_read(self, kind) ? kw_bind_fail(L, self, rc) : kw_bind_fail_write(L, self, rc);
  self->answer = kind;
  self->is_busy = true;
  lua_pushvalue(L, lua_upvalueindex(KW_UP_PUSH));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  int status = lua_pcall(L, 2, 1, 0);
  self->is_busy = false;
  if (status != 0) {
    kw_store_rollback(self->store);
  } else {
    kw_store_commit(self->store);
  }
  uint64_t ticket = is_read(self, kind) ? 0 : kw_bind_open_ticket(self);
  if (self->must_close) kw_bind_close_store(L, self);
  return status != 0 ? lua_error(L) : kw_bind_give(L, ticket, 1);
}

/* }====== */
