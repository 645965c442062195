/* SPDX-License-Identifier: MIT */
#include "bind/lua_message.h"

#include "bind/lua_error.h"
#include "bind/lua_options.h"
#include "bind/lua_value.h"
#include "codec/messages.h"
#include "model/error.h"

#define STACK_ROOM 8     /* values on the stack that one message needs */
#define FIRST_BYTES 1024 /* enough for most messages, without memory from Lua */

/* {====== Decoding ====== */

typedef struct decoder {
  lua_State *L;
  int depth;
  int64_t room; /* fields and items of lists that may still follow; below 0: too many */
} decoder;

static bool decode(decoder *d, const kw_message *message, kw_slice bytes);

static void push_enum(lua_State *L, const kw_field *field, int v) {
  for (int i = 0; i <= v && field->names[i] != NULL; i++) {
    if (i < v) continue;
    lua_pushstring(L, field->names[i]);
    return;
  }
  lua_pushinteger(L, v);
}

static void push_number(lua_State *L, const kw_field *field, uint64_t v) {
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_BOOL: lua_pushboolean(L, v != 0); return;
    case KW_FIELD_ENUM: push_enum(L, field, (int)v); return;
    case KW_FIELD_UINT32: kw_bind_push_int(L, (uint32_t)v); return;
    case KW_FIELD_UINT64: kw_bind_push_uint(L, v); return;
    default: kw_bind_push_id(L, (int64_t)v); return;
  }
}

/* True if the field has the value of an absent field. */
static bool is_default(const kw_field *field, const kw_wire_field *found) {
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_MESSAGE: return false;
    case KW_FIELD_BYTES:
    case KW_FIELD_STRING: return found->bytes.len == 0;
    case KW_FIELD_UINT32:
    case KW_FIELD_ENUM: return (uint32_t)found->value == 0;
    default: return found->value == 0;
  }
}

/* Pushes a value. If the value is a message, decodes it into the table on top of the stack instead. */
static bool push_value(decoder *d, const kw_field *field, const kw_wire_field *found) {
  if (field->kind == KW_FIELD_MESSAGE) return decode(d, field->message, found->bytes);
  if (kw_field_is_number(field)) {
    push_number(d->L, field, found->value);
  } else {
    kw_bind_push_slice(d->L, found->bytes);
  }
  return true;
}

/* Pushes the table in a field of the table on top of the stack. Makes the table if the field is nil. */
static void push_table_of(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, name);
}

static void append(lua_State *L, size_t n) {
  lua_rawseti(L, -2, (int)n + 1);
}

static bool append_packed(decoder *d, const kw_field *field, kw_slice bytes) {
  kw_wire_reader reader = kw_wire_read(bytes);
  uint64_t v;
  for (size_t n = lua_rawlen(d->L, -1); reader.at < reader.end; n++) {
    if (--d->room < 0 || !kw_wire_next_varint(&reader, &v)) return false;
    push_number(d->L, field, v);
    append(d->L, n);
  }
  return true;
}

static bool append_value(decoder *d, const kw_field *field, const kw_wire_field *found) {
  size_t n = lua_rawlen(d->L, -1);
  if (field->kind == KW_FIELD_MESSAGE) lua_newtable(d->L);
  if (!push_value(d, field, found)) return false;
  append(d->L, n);
  return true;
}

static bool set_items(decoder *d, const kw_field *field, const kw_wire_field *found) {
  bool is_packed = kw_field_is_packed(field, found);
  if (is_packed && found->bytes.len == 0) return true;
  push_table_of(d->L, field->name);
  bool ok = is_packed ? append_packed(d, field, found->bytes) : append_value(d, field, found);
  lua_pop(d->L, 1);
  return ok;
}

static void unset(lua_State *L, const kw_field *field) {
  lua_pushnil(L);
  lua_setfield(L, -2, field->name);
}

/* A message that occurs twice is merged, unless it is a member of a oneof. */
static bool set_message(decoder *d, const kw_field *field, const kw_wire_field *found) {
  if (field->is_choice) unset(d->L, field);
  push_table_of(d->L, field->name);
  bool ok = decode(d, field->message, found->bytes);
  lua_pop(d->L, 1);
  return ok;
}

static bool set_value(decoder *d, const kw_field *field, const kw_wire_field *found) {
  if (field->kind == KW_FIELD_MESSAGE) return set_message(d, field, found);
  if (!field->is_choice && is_default(field, found)) {
    unset(d->L, field);
    return true;
  }
  push_value(d, field, found);
  lua_setfield(d->L, -2, field->name);
  return true;
}

static bool set_field(decoder *d, const kw_message *message, const kw_wire_field *found,
                      const kw_field **chosen) {
  const kw_field *field = kw_message_field(message, found->number);
  if (field == NULL) return true;
  if (!kw_field_fits(field, found)) return false;
  if (field->is_repeated) return set_items(d, field, found);
  if (field->is_choice) {
    if (*chosen != NULL && *chosen != field) unset(d->L, *chosen);
    *chosen = field;
  }
  return set_value(d, field, found);
}

/* Decodes into the table on top of the stack. Returns false if the bytes are malformed, or have too many fields: the
 * stack has extra values then. */
static bool decode(decoder *d, const kw_message *message, kw_slice bytes) {
  if (d->depth == KW_MAX_NESTING) return false;
  luaL_checkstack(d->L, STACK_ROOM, message->name);
  d->depth++;
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field found;
  const kw_field *chosen = NULL; /* the member of the oneof that is set */
  while (kw_wire_next(&reader, &found)) {
    if (--d->room < 0 || !set_field(d, message, &found, &chosen)) return false;
  }
  d->depth--;
  return !reader.failed;
}

/* }====== */

/* {====== Encoding ====== */

/* The buffer of a message that is being encoded. A message is written from its end to its start, so that the length of
 * a part is known when the length is written. Once `first` is full, the bytes are in a userdata on the stack, so that
 * an error raised by Lua leaks nothing. */
typedef struct writer {
  lua_State *L;
  int room_at; /* the stack index of the userdata, or of nil */
  int depth;
  uint8_t *bytes;
  size_t cap;
  size_t len; /* how many bytes were written, at the end of the room */
  uint8_t first[FIRST_BYTES];
} writer;

static void encode(writer *w, const kw_message *message);

static void enlarge(writer *w, size_t more) {
  size_t cap = w->cap * 2;
  if (more > cap - w->len) cap = w->len + more;
  uint8_t *bytes = lua_newuserdatauv(w->L, cap, 0);
  memcpy(bytes + cap - w->len, w->bytes + w->cap - w->len, w->len);
  lua_replace(w->L, w->room_at);
  w->bytes = bytes;
  w->cap = cap;
}

/* Returns the address for the next `n` bytes, before all bytes that were written. */
static uint8_t *room_for(writer *w, size_t n) {
  if (n > w->cap - w->len) enlarge(w, n);
  w->len += n;
  return w->bytes + w->cap - w->len;
}

static void put_varint(writer *w, uint64_t v) {
  kw_wire_put_varint(room_for(w, kw_wire_varint_size(v)), v);
}

static void put_bytes(writer *w, kw_slice bytes) {
  if (bytes.len > 0) memcpy(room_for(w, bytes.len), bytes.data, bytes.len);
}

static void put_tag(writer *w, const kw_field *field, kw_wire_type type) {
  put_varint(w, KW_WIRE_TAG(field->number, type));
}

static const char *const expected[] = {
    [KW_FIELD_INT64] = "a whole number, or a decimal string",
    [KW_FIELD_UINT64] = "a whole number, or a decimal string",
    [KW_FIELD_UINT32] = "a whole number of 32 bits",
    [KW_FIELD_BOOL] = "a boolean",
    [KW_FIELD_ENUM] = "a whole number of 32 bits, or one of",
    [KW_FIELD_BYTES] = "a string",
    [KW_FIELD_STRING] = "a string",
    [KW_FIELD_MESSAGE] = "a table",
};

/* Raises: the field does not take the value on top of the stack. */
static void refuse(writer *w, const kw_message *message, const kw_field *field, bool is_item) {
  lua_State *L = w->L;
  int type = lua_type(L, -1);
  const char *what = is_item ? "each item of field" : "field";
  const char *wanted = field->is_repeated && !is_item ? "a list" : expected[field->kind];
  lua_pushfstring(L, "%s: %s '%s' must be %s", message->name, what, field->name, wanted);
  for (int i = 0; wanted == expected[KW_FIELD_ENUM] && field->names[i] != NULL; i++) {
    lua_pushfstring(L, "%s '%s'", i == 0 ? "" : ",", field->names[i]);
    lua_concat(L, 2);
  }
  if (type == LUA_TNUMBER || type == LUA_TSTRING) {
    const char *quote = type == LUA_TSTRING ? "'" : "";
    lua_pushvalue(L, -2);
    bool is_rounded = field->kind <= KW_FIELD_UINT64 && kw_bind_is_inexact(L, -1);
    luaL_error(L, "%s, not %s%s%s%s", lua_tostring(L, -2), quote, lua_tostring(L, -1), quote,
               is_rounded ? ", which is not exact: give a decimal string" : "");
  }
  luaL_error(L, "%s, not a %s", lua_tostring(L, -1), lua_typename(L, type));
}

static bool to_enum(lua_State *L, const kw_field *field, int64_t *v) {
  if (lua_type(L, -1) != LUA_TSTRING) {
    return kw_bind_to_int(L, -1, v) && *v >= INT32_MIN && *v <= INT32_MAX;
  }
  for (*v = 0; field->names[*v] != NULL; ++*v) {
    if (kw_bind_is(L, -1, field->names[*v])) return true;
  }
  return false;
}

/* Reads the number on top of the stack. Returns false if the number is out of range for the field. */
static bool to_number(lua_State *L, const kw_field *field, uint64_t *v) {
  int64_t number = 0;
  bool ok;
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_UINT64: return kw_bind_to_uint(L, -1, v);
    case KW_FIELD_BOOL:
      ok = lua_isboolean(L, -1);
      number = lua_toboolean(L, -1);
      break;
    case KW_FIELD_ENUM: ok = to_enum(L, field, &number); break;
    case KW_FIELD_UINT32:
      ok = kw_bind_to_int(L, -1, &number) && number >= 0 && number <= UINT32_MAX;
      break;
    default: ok = kw_bind_to_id(L, -1, &number);
  }
  *v = (uint64_t)number;
  return ok;
}

/* Writes the value on top of the stack without a tag. */
static void put_value(writer *w, const kw_message *message, const kw_field *field, bool is_item) {
  uint64_t v;
  size_t before = w->len;
  if (kw_field_is_number(field)) {
    if (!to_number(w->L, field, &v)) refuse(w, message, field, is_item);
    put_varint(w, v);
    return;
  }
  int type = field->kind == KW_FIELD_MESSAGE ? LUA_TTABLE : LUA_TSTRING;
  if (lua_type(w->L, -1) != type) refuse(w, message, field, is_item);
  if (field->kind == KW_FIELD_MESSAGE) {
    encode(w, field->message);
  } else {
    put_bytes(w, kw_bind_bytes(w->L, -1));
  }
  put_varint(w, w->len - before);
}

/* True if the only byte written since `before` is 0: a zero, or the length of an empty value. */
static bool is_zero(const writer *w, size_t before) {
  return w->len == before + 1 && w->bytes[w->cap - w->len] == 0;
}

static void put_one(writer *w, const kw_message *message, const kw_field *field) {
  size_t before = w->len;
  put_value(w, message, field, false);
  if (is_zero(w, before) && !field->is_choice && field->kind != KW_FIELD_MESSAGE) {
    w->len = before;
    return;
  }
  put_tag(w, field, kw_field_is_number(field) ? KW_WIRE_VARINT : KW_WIRE_BYTES);
}

static size_t count_keys(lua_State *L, int table) {
  size_t n = 0;
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) n++;
  return n;
}

static void put_list(writer *w, const kw_message *message, const kw_field *field) {
  lua_State *L = w->L;
  bool is_packed = kw_field_is_number(field);
  size_t before = w->len;
  if (!lua_istable(L, -1)) refuse(w, message, field, false);
  size_t n = lua_rawlen(L, -1);
  if (count_keys(L, lua_gettop(L)) != n) refuse(w, message, field, false);
  for (size_t i = n; i > 0; i--) {
    lua_rawgeti(L, -1, (int)i);
    put_value(w, message, field, true);
    if (!is_packed) put_tag(w, field, KW_WIRE_BYTES);
    lua_pop(L, 1);
  }
  if (!is_packed || n == 0) return;
  put_varint(w, w->len - before);
  put_tag(w, field, KW_WIRE_BYTES);
}

static bool has_field(lua_State *L, const kw_message *message) {
  for (size_t i = 0; i < message->n; i++) {
    if (kw_bind_is(L, -2, message->fields[i].name)) return true;
  }
  return false;
}

/* Raises: the table has a field that the message does not have. */
static void refuse_names(lua_State *L, const kw_message *message, int table) {
  for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) {
    if (has_field(L, message)) continue;
    if (lua_type(L, -2) == LUA_TSTRING) {
      luaL_error(L, "%s: there is no field '%s'", message->name, lua_tostring(L, -2));
    }
    luaL_error(L, "%s: names of fields are strings, and one is a %s", message->name,
               luaL_typename(L, -2));
  }
}

/* Writes the table on top of the stack. */
static void encode(writer *w, const kw_message *message) {
  lua_State *L = w->L;
  int table = lua_gettop(L);
  size_t n = 0;
  const kw_field *chosen = NULL;
  if (w->depth++ == KW_MAX_NESTING) luaL_error(L, "%s: nested too deep", message->name);
  luaL_checkstack(L, STACK_ROOM, message->name);
  for (size_t i = message->n; i-- > 0; lua_settop(L, table)) {
    const kw_field *field = &message->fields[i];
    lua_pushstring(L, field->name);
    lua_rawget(L, table);
    if (lua_isnil(L, -1)) continue;
    n++;
    if (field->is_choice && chosen != NULL) {
      luaL_error(L, "%s: only one of the fields '%s' and '%s' may be given", message->name,
                 field->name, chosen->name);
    }
    if (field->is_choice) chosen = field;
    if (field->is_repeated) {
      put_list(w, message, field);
    } else {
      put_one(w, message, field);
    }
  }
  if (count_keys(L, table) != n) refuse_names(L, message, table);
  w->depth--;
}

/* }====== */

/* Returns the message whose name is argument 1. The first upvalue maps names to indices. */
static const kw_message *check_message(lua_State *L) {
  luaL_checktype(L, 1, LUA_TSTRING);
  lua_pushvalue(L, 1);
  lua_rawget(L, lua_upvalueindex(1));
  if (lua_isnil(L, -1)) {
    lua_pushfstring(L, "there is no message '%s'", lua_tostring(L, 1));
    luaL_argerror(L, 1, lua_tostring(L, -1));
  }
  const kw_message *message = kw_message_at((size_t)lua_tointeger(L, -1));
  lua_pop(L, 1);
  return message;
}

/* encode(name, table): the bytes. */
static int l_encode(lua_State *L) {
  const kw_message *message = check_message(L);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  lua_pushnil(L);
  lua_insert(L, 2); /* room_at, below the table */
  writer w = {.L = L, .room_at = 2, .bytes = w.first, .cap = FIRST_BYTES};
  encode(&w, message);
  lua_pushlstring(L, (const char *)w.bytes + w.cap - w.len, w.len);
  return 1;
}

/* decode(name, bytes, max_fields): a table, or nil and an error. */
static int l_decode(lua_State *L) {
  const kw_message *message = check_message(L);
  kw_slice bytes = kw_bind_check_bytes(L, 2);
  decoder d = {.L = L, .room = lua_isnoneornil(L, 3) ? INT64_MAX : kw_bind_check_int(L, 3, 0)};
  lua_settop(L, 2);
  lua_newtable(L);
  if (decode(&d, message, bytes)) return 1;
  lua_settop(L, 2);
  return kw_bind_push_failure(L, lua_upvalueindex(2),
                              d.room < 0 ? KW_ERR_REQUEST_TOO_LARGE : KW_ERR_MALFORMED);
}

void kw_bind_add_messages(lua_State *L) {
  lua_newtable(L); /* messages */
  lua_newtable(L); /* the index of each message, by its name */
  for (int i = 0; kw_message_at((size_t)i) != NULL; i++) {
    const char *name = kw_message_at((size_t)i)->name;
    lua_pushstring(L, name);
    lua_rawseti(L, -3, i + 1);
    lua_pushinteger(L, i);
    lua_setfield(L, -2, name);
  }
  lua_pushvalue(L, -1);
  lua_pushcclosure(L, l_encode, 1);
  lua_setfield(L, -4, "encode");
  kw_bind_push_error_meta(L);
  lua_pushcclosure(L, l_decode, 2);
  lua_setfield(L, -3, "decode");
  lua_setfield(L, -2, "messages");
}
