/* SPDX-License-Identifier: MIT
 *
 * lua_rows: the rows of a store, for services and not for users.
 *
 *   store:change_rows{ { table, key, bytes }, { table, key }, ... }
 *                             -> true. A change with bytes puts a row, a change without bytes erases it; all or none.
 *   store:rows(table)         -> { key, ... }, sorted
 *   store:rows(table, key)    -> bytes, or nil if there is no such row
 */
#include "bind/lua_result.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"

static kw_slice check_table(lua_State *L, int at) {
  if (lua_type(L, at) != LUA_TSTRING) luaL_error(L, "rows: the name of a table must be a string");
  kw_slice table = kw_bind_bytes(L, at);
  if (memchr(table.data, 0, table.len) != NULL)
    luaL_error(L, "rows: the name of a table must not contain a zero byte");
  return table;
}

/* Reads the change on top of the stack. Returns false if memory is short. */
static bool read_change(lua_State *L, kw_arena *arena, kw_row_change *change) {
  int at = lua_gettop(L);
  if (!lua_istable(L, at)) luaL_error(L, "change_rows: a change must be a table");
  for (int i = 1; i <= 3; i++) lua_rawgeti(L, at, i);
  kw_slice table = check_table(L, at + 1);
  change->is_erased = lua_isnil(L, at + 3);
  if (lua_type(L, at + 2) != LUA_TSTRING ||
      (!change->is_erased && lua_type(L, at + 3) != LUA_TSTRING))
    luaL_error(L, "change_rows: keys and bytes must be strings");
  if (!change->is_erased) change->bytes = kw_bind_bytes(L, at + 3);
  bool ok = kw_rows_name(arena, table, kw_bind_bytes(L, at + 2), &change->name);
  lua_settop(L, at);
  return ok;
}

static int l_change_rows(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checkstack(L, 8, "change_rows");
  size_t n = lua_rawlen(L, 2);
  kw_row_change *changes = kw_arena_array(&self->arena, n, sizeof *changes);
  int rc = changes == NULL ? KW_ERR_NO_MEMORY : KW_OK;
  for (size_t i = 0; i < n && rc == KW_OK; i++) {
    lua_rawgeti(L, 2, (int)i + 1);
    if (!read_change(L, &self->arena, &changes[i])) rc = KW_ERR_NO_MEMORY;
    lua_pop(L, 1);
  }
  if (rc == KW_OK) rc = kw_store_change_rows(self->store, changes, n);
  return kw_bind_end_write(L, self, rc);
}

static int l_rows(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  bool is_one = !lua_isnoneornil(L, 3);
  kw_slice table = check_table(L, 2);
  kw_slice key = is_one ? kw_bind_check_bytes(L, 3) : kw_slice_of("", 0);
  luaL_checkstack(L, 4, "answer");
  self->rows = kw_store_rows(self->store);
  bool ok = kw_rows_name(&self->arena, table, key, &self->row_name);
  return kw_bind_answer(L, self, ok ? KW_OK : KW_ERR_NO_MEMORY,
                        is_one ? KW_ANSWER_ROW : KW_ANSWER_ROWS);
}

const luaL_Reg kw_bind_row_methods[] = {
    {"change_rows", l_change_rows}, {"rows", l_rows}, {NULL, NULL}};
