/* SPDX-License-Identifier: MIT */
#include "codec/message.h"

#include "base/blob.h"
#include "codec/keyvalue.h"
#include "codec/wire.h"
#include "model/error.h"

/* The lists of a message may take LEAST_ROOM bytes of memory, and ROOM_FACTOR times the size of the message. Operations
 * and compares with a key always fit. Empty operations need not fit: each takes two bytes of the message, and fifty
 * times as much memory. */
#define LEAST_ROOM (64 * 1024)
#define ROOM_FACTOR 16

/* A message may have LEAST_FIELDS fields, and FIELDS_OF_ITEM more for each item of its lists. No valid message has so
 * many fields outside of lists, but a request with unknown or repeated fields may. */
#define LEAST_FIELDS 4096
#define FIELDS_OF_ITEM 16

const kw_field *kw_message_field(const kw_message *message, uint32_t number) {
  if (number <= message->n && message->fields[number - 1].number == number) {
    return &message->fields[number - 1]; /* most messages number their fields without gaps */
  }
  for (size_t i = 0; i < message->n; i++) {
    if (message->fields[i].number == number) return &message->fields[i];
  }
  return NULL;
}

static size_t item_size(const kw_field *field) {
  if (field->is_encoded) return sizeof(const kw_blob *);
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_INT64:
    case KW_FIELD_UINT64:
    case KW_FIELD_UINT32: return sizeof(int64_t);
    case KW_FIELD_BOOL: return sizeof(bool);
    case KW_FIELD_ENUM: return sizeof(int);
    case KW_FIELD_BYTES:
    case KW_FIELD_STRING: return sizeof(kw_slice);
    case KW_FIELD_MESSAGE: return field->message->size;
  }
  return 0;
}

/* Lists in records have types of their own, with the layout of a kw_repeated: they are copied, not cast. */
static kw_repeated load_list(const void *from) {
  kw_repeated list;
  memcpy(&list, from, sizeof list);
  return list;
}

static void store_list(void *to, kw_repeated list) {
  memcpy(to, &list, sizeof list);
}

/* {====== Decoding ====== */

typedef struct decoder {
  kw_arena *arena;
  size_t room;   /* bytes left for the items of lists */
  size_t items;  /* items of lists that are still allowed */
  size_t fields; /* fields that are still allowed */
  int depth;     /* number of messages around the current one */
} decoder;

static int decode(decoder *d, const kw_message *message, kw_slice bytes, void *record);

static void store_number(const kw_field *field, uint64_t v, void *to) {
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_BOOL: *(bool *)to = v != 0; return;
    case KW_FIELD_ENUM: *(int *)to = (int)v; return;
    case KW_FIELD_UINT32: *(int64_t *)to = (uint32_t)v; return;
    default: *(int64_t *)to = (int64_t)v; return;
  }
}

/* Encodes a message again, so that its fields are in order and without unknown ones. */
static int store_encoded(decoder *d, const kw_message *message, kw_slice bytes, void *to) {
  void *record = kw_arena_alloc(d->arena, message->size);
  if (record == NULL) return KW_ERR_NO_MEMORY;
  int rc = decode(d, message, bytes, record);
  if (rc != KW_OK) return rc;
  size_t len = kw_message_size(message, record);
  kw_blob *blob = kw_arena_alloc(d->arena, sizeof *blob + len);
  if (blob == NULL) return KW_ERR_NO_MEMORY;
  *blob = (kw_blob){.refs = 1, .len = (uint32_t)len};
  kw_message_put(message, record, blob->bytes);
  *(const kw_blob **)to = blob;
  return KW_OK;
}

static int store_value(decoder *d, const kw_field *field, const kw_wire_field *found, void *to) {
  if (kw_field_is_number(field)) {
    store_number(field, found->value, to);
    return KW_OK;
  }
  if (field->is_encoded) return store_encoded(d, field->message, found->bytes, to);
  if (field->kind == KW_FIELD_MESSAGE) return decode(d, field->message, found->bytes, to);
  *(kw_slice *)to = found->bytes;
  return KW_OK;
}

static size_t count_packed(kw_slice bytes) {
  size_t n = 0;
  for (size_t i = 0; i < bytes.len; i++) n += bytes.data[i] < 0x80;
  return n;
}

static size_t count_items(const kw_field *field, const kw_wire_field *found) {
  return kw_field_is_packed(field, found) ? count_packed(found->bytes) : 1;
}

/* Makes a list with space for the found field, and for all later fields of the message with the same number. */
static int make_list(decoder *d, const kw_field *field, const kw_wire_field *found,
                     kw_wire_reader rest, kw_repeated *list) {
  kw_wire_field next;
  size_t n = count_items(field, found), most_others = d->fields + d->items;
  while (kw_wire_next(&rest, &next)) {
    if (next.number == field->number) {
      n += count_items(field, &next);
    } else if (most_others-- == 0) {
      return KW_ERR_REQUEST_TOO_LARGE;
    }
  }
  if (n == 0) return KW_ERR_MALFORMED; /* packed bytes without a complete number */
  if (n > d->items || n > d->room / item_size(field)) return KW_ERR_TOO_MANY_OPS;
  d->items -= n;
  d->fields += FIELDS_OF_ITEM * n;
  d->room -= n * item_size(field);
  *list = (kw_repeated){.items = kw_arena_array(d->arena, n, item_size(field))};
  return list->items == NULL ? KW_ERR_NO_MEMORY : KW_OK;
}

static int store_packed(const kw_field *field, kw_slice bytes, kw_repeated *list) {
  kw_wire_reader reader = kw_wire_read(bytes);
  uint64_t v;
  while (reader.at < reader.end) {
    if (!kw_wire_next_varint(&reader, &v)) return KW_ERR_MALFORMED;
    store_number(field, v, (char *)list->items + list->n++ * item_size(field));
  }
  return KW_OK;
}

static int store_items(decoder *d, const kw_field *field, const kw_wire_field *found,
                       const kw_wire_reader *reader, char *to) {
  bool is_packed = kw_field_is_packed(field, found);
  if (is_packed && found->bytes.len == 0) return KW_OK;
  kw_repeated list = load_list(to);
  int rc = list.items == NULL ? make_list(d, field, found, *reader, &list) : KW_OK;
  if (rc != KW_OK) return rc;
  if (is_packed) {
    rc = store_packed(field, found->bytes, &list);
  } else {
    rc = store_value(d, field, found, (char *)list.items + list.n++ * item_size(field));
  }
  store_list(to, list);
  return rc;
}

/* The last member of a oneof wins: the value of an earlier one is cleared. */
static void choose(const kw_message *message, const kw_field *field, char *record) {
  int *choice = (int *)(record + message->choice);
  if (*choice != 0) {
    const kw_field *last = kw_message_field(message, (uint32_t)*choice);
    memset(record + last->offset, 0, item_size(last));
  }
  *choice = field->number;
}

static int store_field(decoder *d, const kw_message *message, const kw_wire_field *found,
                       const kw_wire_reader *reader, char *record) {
  const kw_field *field = kw_message_field(message, found->number);
  if (field == NULL) return KW_OK;
  if (!kw_field_fits(field, found)) return KW_ERR_MALFORMED;
  if (field->offset == KW_NO_OFFSET) return KW_OK;
  if (field->is_repeated) return store_items(d, field, found, reader, record + field->offset);
  if (field->is_choice) choose(message, field, record);
  return store_value(d, field, found, record + field->offset);
}

static int decode(decoder *d, const kw_message *message, kw_slice bytes, void *record) {
  if (d->depth == KW_MAX_NESTING) return KW_ERR_TOO_MANY_OPS;
  d->depth++;
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field found;
  int rc = KW_OK;
  while (rc == KW_OK && kw_wire_next(&reader, &found)) {
    rc = d->fields-- == 0 ? KW_ERR_REQUEST_TOO_LARGE
                          : store_field(d, message, &found, &reader, record);
  }
  if (rc == KW_OK && reader.failed) rc = KW_ERR_MALFORMED;
  if (rc == KW_OK && message->finish != NULL) message->finish(record);
  d->depth--;
  return rc;
}

int kw_message_decode_within(const kw_message *message, kw_slice bytes, size_t items,
                             kw_arena *arena, void *record) {
  decoder d = {.arena = arena,
               .room = LEAST_ROOM + ROOM_FACTOR * bytes.len,
               .items = kw_min_size(items, bytes.len),
               .fields = LEAST_FIELDS};
  return decode(&d, message, bytes, record);
}

int kw_message_decode(const kw_message *message, kw_slice bytes, kw_arena *arena, void *record) {
  return kw_message_decode_within(message, bytes, SIZE_MAX, arena, record);
}

/* }====== */

/* {====== Encoding ====== */

static uint64_t load_number(const kw_field *field, const void *from) {
  switch ((kw_field_kind)field->kind) {
    case KW_FIELD_BOOL: return *(const bool *)from;
    case KW_FIELD_ENUM: return (uint64_t)(int64_t) * (const int *)from;
    default: return (uint64_t) * (const int64_t *)from;
  }
}

/* The values of a field in a record: the items of a list, one value, or none. */
typedef struct values {
  const char *first;
  size_t n;
  bool is_bare;
} values;

static size_t value_len(const kw_field *field, const void *from, bool is_bare) {
  if (kw_field_is_number(field)) return kw_wire_varint_size(load_number(field, from));
  if (field->is_encoded) {
    const kw_blob *blob = *(const kw_blob *const *)from;
    return is_bare ? kw_keyvalue_bare_size(blob) : blob->len;
  }
  if (field->kind == KW_FIELD_MESSAGE) return kw_message_size(field->message, from);
  return ((const kw_slice *)from)->len;
}

static uint8_t *put_value(const kw_field *field, const void *from, bool is_bare, uint8_t *to) {
  if (kw_field_is_number(field)) return kw_wire_put_varint(to, load_number(field, from));
  if (field->kind == KW_FIELD_MESSAGE && !field->is_encoded) {
    return kw_message_put(field->message, from, to);
  }
  if (is_bare) return kw_keyvalue_put_bare(*(const kw_blob *const *)from, to);
  kw_slice bytes =
      field->is_encoded ? kw_blob_slice(*(const kw_blob *const *)from) : *(const kw_slice *)from;
  if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
  return to + bytes.len;
}

/* True if a value outside of lists and oneofs is written: as in proto3, unless it is zero or empty. */
static bool is_written(const kw_field *field, const void *from) {
  if (field->is_always) return true;
  if (kw_field_is_number(field)) return load_number(field, from) != 0;
  if (field->is_encoded) return *(const kw_blob *const *)from != NULL;
  return value_len(field, from, false) > 0;
}

static values values_of(const kw_message *message, const kw_field *field, const char *record) {
  if (field->offset == KW_NO_OFFSET) return (values){0};
  const char *at = record + field->offset;
  bool is_bare = field->bare != 0 && *(const bool *)(record + field->bare);
  if (field->is_repeated) {
    kw_repeated list = load_list(at);
    return (values){list.items, list.n, is_bare};
  }
  bool is_there = field->is_choice ? *(const int *)(record + message->choice) == field->number
                                   : is_written(field, at);
  return (values){at, is_there, is_bare};
}

static size_t tag_size(const kw_field *field) {
  return kw_wire_varint_size((uint64_t)field->number << 3);
}

static size_t packed_len(const kw_field *field, values v) {
  size_t len = 0;
  for (size_t i = 0; i < v.n; i++) len += value_len(field, v.first + i * item_size(field), false);
  return len;
}

static size_t field_size(const kw_field *field, values v) {
  if (v.n == 0) return 0;
  if (kw_field_is_number(field)) {
    size_t len = packed_len(field, v);
    return tag_size(field) + len + (field->is_repeated ? kw_wire_varint_size(len) : 0);
  }
  size_t sum = v.n * tag_size(field);
  for (size_t i = 0; i < v.n; i++) {
    size_t len = value_len(field, v.first + i * item_size(field), v.is_bare);
    sum += kw_wire_varint_size(len) + len;
  }
  return sum;
}

static uint8_t *put_numbers(const kw_field *field, values v, uint8_t *to) {
  kw_wire_type type = field->is_repeated ? KW_WIRE_BYTES : KW_WIRE_VARINT;
  to = kw_wire_put_varint(to, KW_WIRE_TAG(field->number, type));
  if (field->is_repeated) to = kw_wire_put_varint(to, packed_len(field, v));
  for (size_t i = 0; i < v.n; i++) {
    to = put_value(field, v.first + i * item_size(field), false, to);
  }
  return to;
}

static uint8_t *put_field(const kw_field *field, values v, uint8_t *to) {
  if (v.n == 0) return to;
  if (kw_field_is_number(field)) return put_numbers(field, v, to);
  for (size_t i = 0; i < v.n; i++) {
    const void *from = v.first + i * item_size(field);
    to = kw_wire_put_varint(to, KW_WIRE_TAG(field->number, KW_WIRE_BYTES));
    to = kw_wire_put_varint(to, value_len(field, from, v.is_bare));
    to = put_value(field, from, v.is_bare, to);
  }
  return to;
}

static size_t size_from(const kw_message *message, size_t first, const void *record) {
  size_t sum = 0;
  for (size_t i = first; i < message->n; i++) {
    const kw_field *field = &message->fields[i];
    sum += field_size(field, values_of(message, field, record));
  }
  return sum;
}

static uint8_t *put_from(const kw_message *message, size_t first, const void *record, uint8_t *to) {
  for (size_t i = first; i < message->n; i++) {
    const kw_field *field = &message->fields[i];
    to = put_field(field, values_of(message, field, record), to);
  }
  return to;
}

size_t kw_message_size(const kw_message *message, const void *record) {
  return size_from(message, 0, record);
}

uint8_t *kw_message_put(const kw_message *message, const void *record, uint8_t *to) {
  return put_from(message, 0, record, to);
}

size_t kw_message_rest_size(const kw_message *message, const void *record) {
  return size_from(message, 1, record);
}

uint8_t *kw_message_put_rest(const kw_message *message, const void *record, uint8_t *to) {
  return put_from(message, 1, record, to);
}

/* }====== */
