/* SPDX-License-Identifier: MIT
 *
 * message: protobuf messages by description. One list of fields serves C records and, in bind, Lua tables.
 *
 * A field of a record is an int64_t (numbers of any width), an int (enums), a bool, a kw_slice (bytes and strings), or
 * the record of another message; a repeated field is a kw_repeated. A message may also stand in the record encoded
 * already, as a blob that is borrowed; decoding makes it in the arena. Of a oneof, the record has an int that says
 * which member was the last to come: its number as a field, or 0.
 *
 * Decoding never trusts a length, skips what it does not know, and takes slices of the bytes that it is given.
 */
#ifndef KW_CODEC_MESSAGE_H
#define KW_CODEC_MESSAGE_H

#include "base/arena.h"
#include "base/slice.h"
#include "codec/wire.h"

typedef enum kw_field_kind {
  KW_FIELD_INT64,
  KW_FIELD_UINT64,
  KW_FIELD_UINT32,
  KW_FIELD_BOOL,
  KW_FIELD_ENUM,
  KW_FIELD_BYTES,
  KW_FIELD_STRING,
  KW_FIELD_MESSAGE
} kw_field_kind;

#define KW_NO_PLACE UINT16_MAX /* the offset of what a record does not keep */
#define KW_MAX_NESTING 404     /* of messages: transactions nest KW_MAX_TXN_NESTING deep */

typedef struct kw_message kw_message;

typedef struct kw_field {
  const char *name;
  uint8_t number;
  uint8_t kind; /* kw_field_kind */
  bool is_repeated;
  bool is_choice;  /* a member of the message's oneof: there even if it is zero or empty */
  bool is_always;  /* a message that is written even if it is empty */
  bool is_encoded; /* the record has a const kw_blob * where it would have a record */
  uint16_t offset; /* in the record */
  uint16_t bare;   /* the offset of a bool: encoded KeyValues go without their value; 0: of none */
  const kw_message *message; /* of a MESSAGE */
  const char *const *names;  /* of an ENUM, by value, ended by NULL */
} kw_field;

struct kw_message {
  const char *name;
  const kw_field *fields; /* by rising number */
  uint16_t n;
  uint16_t size;                /* of the record; 0: the message has none, and is for Lua alone */
  uint16_t choice;              /* the offset of the int of its oneof; KW_NO_PLACE: it has none */
  void (*settle)(void *record); /* called for a record that was decoded; or NULL */
};

typedef struct kw_repeated {
  void *items;
  size_t n;
} kw_repeated;

/* The field of a number, or NULL. */
const kw_field *kw_message_field(const kw_message *message, uint32_t number);

static inline bool kw_field_is_number(const kw_field *field) {
  return field->kind <= KW_FIELD_ENUM;
}

/* Whether what was found is a run of numbers, one after the other in one field of bytes: so they are written where
 * they repeat, but they may also come one by one. */
static inline bool kw_field_is_packed(const kw_field *field, const kw_wire_field *found) {
  return field->is_repeated && kw_field_is_number(field) && found->type == KW_WIRE_BYTES;
}

/* Whether what was found has the wire type of the field. */
static inline bool kw_field_fits(const kw_field *field, const kw_wire_field *found) {
  bool is_number = kw_field_is_number(field) && !kw_field_is_packed(field, found);
  return found->type == (is_number ? KW_WIRE_VARINT : KW_WIRE_BYTES);
}

/* Fills in a zeroed record. KW_OK, KW_ERR_MALFORMED, KW_ERR_TOO_MANY_OPS if its lists are out of proportion or
 * it nests deeper than KW_MAX_NESTING, or KW_ERR_NO_MEMORY if the arena could not grow. */
int kw_message_decode(const kw_message *message, kw_slice bytes, kw_arena *arena, void *record);

/* How many bytes a record takes, and writing it there. */
size_t kw_message_size(const kw_message *message, const void *record);
uint8_t *kw_message_put(const kw_message *message, const void *record, uint8_t *to);

/* The same without the first field: the header of an answer, which is written for itself. */
size_t kw_message_rest_size(const kw_message *message, const void *record);
uint8_t *kw_message_put_rest(const kw_message *message, const void *record, uint8_t *to);

#endif
