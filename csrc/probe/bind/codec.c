/* SPDX-License-Identifier: MIT */
#include "probe/bind.h"

#include "base/mem.h"
#include "bind/lua_error.h"
#include "bind/lua_value.h"
#include "codec/grpc.h"
#include "codec/messages.h"
#include "model/error.h"

/* Returns a block of exactly that size, at least one byte: sanitizers see every access beyond it. */
static uint8_t *block_of(size_t len) {
  return kw_alloc_zeroed(len + (len == 0));
}

/* Returns a copy of the bytes in such a block, or NULL. */
static uint8_t *copy_of(kw_slice bytes) {
  uint8_t *copy = block_of(bytes.len);
  if (copy != NULL && bytes.len > 0) memcpy(copy, bytes.data, bytes.len);
  return copy;
}

/* {====== Messages ====== */

typedef enum how { WHOLE, REST, BARE } how;

static const char *const hows[] = {"whole", "rest", "bare", NULL};

typedef struct recoder {
  const kw_message *message;
  how how;
  kw_arena arena;
  uint8_t *in;
  void *record;
  uint8_t *out;
  size_t len;
} recoder;

static const kw_message *find_message(const char *name) {
  const kw_message *message;
  for (size_t i = 0; (message = kw_message_at(i)) != NULL; i++) {
    if (strcmp(message->name, name) == 0) break;
  }
  return message;
}

static int encode_again(recoder *r) {
  if (r->how == BARE) ((kw_reply *)r->record)->range.keys_only = true;
  r->len = r->how == REST ? kw_message_rest_size(r->message, r->record)
                          : kw_message_size(r->message, r->record);
  r->out = block_of(r->len);
  if (r->out == NULL) return KW_ERR_NO_MEMORY;
  uint8_t *end = r->how == REST ? kw_message_put_rest(r->message, r->record, r->out)
                                : kw_message_put(r->message, r->record, r->out);
  assert(end == r->out + r->len);
  (void)end;
  return KW_OK;
}

static int recode(recoder *r, kw_slice bytes) {
  r->in = copy_of(bytes);
  r->record = block_of(r->message->size);
  if (r->in == NULL || r->record == NULL) return KW_ERR_NO_MEMORY;
  int rc = kw_message_decode(r->message, kw_slice_of(r->in, bytes.len), &r->arena, r->record);
  return rc == KW_OK ? encode_again(r) : rc;
}

/* recode(name, bytes, how): decodes the bytes into a record and encodes it again: bytes, or nil and an error.
 * `how` is "whole"; "rest": without the header; "bare": without values, for a RangeResponse. */
static int l_recode(lua_State *L) {
  recoder r = {.message = find_message(luaL_checkstring(L, 1))};
  luaL_argcheck(L, r.message != NULL, 1, "no such message");
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  r.how = (how)luaL_checkoption(L, 3, "whole", hows);
  luaL_argcheck(L, r.how != BARE || r.message == &kw_msg_range_response, 3, "has no values");
  int rc = recode(&r, bytes);
  if (rc == KW_OK) lua_pushlstring(L, (const char *)r.out, r.len);
  kw_free(r.in);
  kw_free(r.record);
  kw_free(r.out);
  kw_arena_drop(&r.arena);
  if (rc == KW_OK) return 1;
  kw_bind_push_error_meta(L);
  return kw_bind_push_failure(L, lua_gettop(L), rc);
}

/* }====== */

/* {====== gRPC ====== */

static const char *const ends[] = {
    [KW_GRPC_MORE] = "torn",           [KW_GRPC_MESSAGE] = "between",
    [KW_GRPC_TOO_LARGE] = "too_large", [KW_GRPC_COMPRESSED] = "compressed",
    [KW_GRPC_NO_MEMORY] = "no_memory",
};

/* Appends the messages of one piece to the list on top of the stack. */
static kw_grpc_split split_piece(lua_State *L, kw_grpc_splitter *splitter, kw_slice piece) {
  kw_slice message;
  for (;;) {
    kw_grpc_split found = kw_grpc_next(splitter, &piece, &message);
    if (found != KW_GRPC_MESSAGE) return found;
    kw_bind_push_slice(L, message);
    lua_rawseti(L, -2, (int)lua_rawlen(L, -2) + 1);
  }
}

/* split(max_len, pieces): the messages; how the splitter ended; how many bytes are buffered. */
static int l_split(lua_State *L) {
  kw_grpc_splitter splitter = {.max_len = (size_t)luaL_checkinteger(L, 1)};
  kw_grpc_split found = KW_GRPC_MORE;
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_newtable(L);
  for (size_t i = 1; found == KW_GRPC_MORE && i <= lua_rawlen(L, 2); i++) {
    lua_rawgeti(L, 2, (int)i);
    kw_slice piece = kw_bind_bytes(L, -1);
    uint8_t *copy = copy_of(piece);
    lua_pop(L, 1);
    found =
        copy == NULL ? KW_GRPC_NO_MEMORY : split_piece(L, &splitter, kw_slice_of(copy, piece.len));
    kw_free(copy);
  }
  if (found == KW_GRPC_MORE && kw_grpc_is_between(&splitter)) found = KW_GRPC_MESSAGE;
  lua_pushstring(L, ends[found]);
  lua_pushinteger(L, (lua_Integer)splitter.cap);
  kw_grpc_drop(&splitter);
  return 3;
}

/* escape(text): the text as a grpc-message. */
static int l_escape(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  uint8_t *to = block_of(3 * text.len);
  size_t len = kw_grpc_escape(text, to);
  lua_pushlstring(L, (const char *)to, len);
  kw_free(to);
  return 1;
}

/* unescape(text): the text of a grpc-message. */
static int l_unescape(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  uint8_t *copy = copy_of(text);
  lua_pushlstring(L, (const char *)copy, kw_grpc_unescape(copy, text.len));
  kw_free(copy);
  return 1;
}

/* timeout(text): the milliseconds of a grpc-timeout, or -1. */
static int l_timeout(lua_State *L) {
  kw_slice text = kw_bind_check_bytes(L, 1);
  uint8_t *copy = copy_of(text);
  kw_bind_push_int(L, kw_grpc_timeout(kw_slice_of(copy, text.len)));
  kw_free(copy);
  return 1;
}

/* }====== */

static const luaL_Reg probes[] = {{"recode", l_recode},   {"split", l_split},
                                  {"escape", l_escape},   {"unescape", l_unescape},
                                  {"timeout", l_timeout}, {NULL, NULL}};

void kw_bind_add_probe_codec(lua_State *L) {
  luaL_setfuncs(L, probes, 0);
}
