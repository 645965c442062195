/* SPDX-License-Identifier: MIT */
#include "bind/lua_json_call.h"
#include "bind/lua_value.h"
#include "codec/json.h"

typedef struct finder {
  lua_State *L;
  kw_json_reader reader;
  int n; /* indexes in the list on top of the stack */
} finder;

/* Returns the place of the next token. The reader has accepted the bytes before the last token alone, so what is
 * skipped may still be wrong: then the next token fails. */
static const uint8_t *next_place(const kw_json_reader *r) {
  const uint8_t *at = r->at;
  while (at < r->end && memchr(" \t\r\n,:", *at, 6) != NULL) at++;
  return at;
}

static void add(finder *f, const uint8_t *place) {
  kw_bind_push_int(f->L, place - (const uint8_t *)lua_tostring(f->L, 1) + 1);
  lua_rawseti(f->L, -2, ++f->n);
}

/* Reads the rest of a value that has begun with a token. Returns false after a failure. */
static bool skip_value(kw_json_reader *r, kw_json_kind kind) {
  kw_json_token token;
  while (kind != KW_JSON_FAILED && r->depth > 1) kind = kw_json_next(r, &token);
  return kind != KW_JSON_FAILED;
}

/* Adds the items and the closing bracket. Returns false after a failure. */
static bool find(finder *f) {
  kw_json_reader *r = &f->reader;
  for (;;) {
    kw_json_token token;
    const uint8_t *place = next_place(r);
    kw_json_kind kind = kw_json_next(r, &token);
    if (kind == KW_JSON_FAILED) return false;
    add(f, place);
    if (r->depth == 0) return true;
    if (kind == KW_JSON_NAME) {
      add(f, token.text.data + token.text.len + 1);
      place = next_place(r);
      kind = kw_json_next(r, &token);
    } else {
      add(f, place);
    }
    add(f, place);
    if (!skip_value(r, kind)) return false;
    add(f, r->at);
  }
}

int kw_bind_json_items(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  lua_Integer at = luaL_checkinteger(L, 2);
  finder f = {.L = L, .n = 0};
  kw_json_token token;
  luaL_argcheck(L, at >= 1 && (size_t)at <= text.len + 1, 2, "no such index");
  lua_newtable(L);
  kw_json_read(&f.reader, kw_slice_of(text.data + (at - 1), text.len - (size_t)(at - 1)),
               KW_JSON_MAX_DEPTH);
  kw_json_next(&f.reader, &token);
  return f.reader.depth == 1 && find(&f);
}
