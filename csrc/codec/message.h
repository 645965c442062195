/* SPDX-License-Identifier: MIT
 *
 * message: encodes and decodes protobuf messages by a description. A description is a list of fields; it is used here
 * for records in C, and in bind for Lua tables.
 *
 *   field of the message        member of the record
 *   number of any width         int64_t
 *   enum                        int
 *   bool                        bool
 *   bytes, string               kw_slice
 *   message                     the record of that message; or a const kw_blob *, the encoded message
 *   repeated                    kw_repeated of these
 *   oneof                       an int: the number of the last field in the message, or 0
 *
 * A record borrows its slices and blobs. Decoded slices point into the decoded bytes; decoded blobs and lists are in
 * the arena. Decoding trusts no length, and skips unknown fields.
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
  KW_FIELD_STRING, /* like BYTES: UTF-8 is not checked */
  KW_FIELD_MESSAGE
} kw_field_kind;

#define KW_NO_OFFSET UINT16_MAX /* offset of a field that the record does not have */
#define KW_MAX_NESTING 404      /* depth of messages: transactions nest KW_MAX_TXN_NESTING deep */

typedef struct kw_message kw_message;

typedef struct kw_field {
  const char *name;
  uint8_t number;
  uint8_t kind; /* kw_field_kind */
  bool is_repeated;
  bool is_choice;  /* member of the message's oneof: written even if it is zero or empty */
  bool is_always;  /* message that is written even if it is empty */
  bool is_encoded; /* the record has the encoded message, a const kw_blob * */
  uint16_t offset; /* in the record */
  uint16_t bare;   /* offset of a bool: if true, KeyValues are written without values; 0: none */
  const kw_message *message; /* description of a MESSAGE */
  const char *const *names;  /* names of an ENUM by value, ended by NULL */
} kw_field;

struct kw_message {
  const char *name;
  const kw_field *fields; /* by rising number */
  uint16_t n;
  uint16_t size;   /* bytes of the record; 0: the message is only for Lua */
  uint16_t choice; /* offset of the int of the oneof; KW_NO_OFFSET: there is no oneof */
  void (*finish)(void *record); /* corrects a record after its fields were decoded; or NULL */
};

typedef struct kw_repeated {
  void *items;
  size_t n;
} kw_repeated;

/* Returns the field with a number, or NULL. The number must not be 0, which no field has. */
const kw_field *kw_message_field(const kw_message *message, uint32_t number);

/* True if the values of the field are varints: numbers, bools and enums. */
static inline bool kw_field_is_number(const kw_field *field) {
  return field->kind <= KW_FIELD_ENUM;
}

/* True if the found field is packed: several numbers in one field of bytes. Repeated numbers are written packed, and
 * read packed or one by one. */
static inline bool kw_field_is_packed(const kw_field *field, const kw_wire_field *found) {
  return field->is_repeated && kw_field_is_number(field) && found->type == KW_WIRE_BYTES;
}

/* True if the found field has the wire type of the described field. */
static inline bool kw_field_fits(const kw_field *field, const kw_wire_field *found) {
  bool is_number = kw_field_is_number(field) && !kw_field_is_packed(field, found);
  return found->type == (is_number ? KW_WIRE_VARINT : KW_WIRE_BYTES);
}

/* Decodes `bytes` into a zeroed record. Returns KW_OK; KW_ERR_MALFORMED; KW_ERR_TOO_MANY_OPS if the lists of the
 * message need much more memory than it has bytes, or if messages nest deeper than KW_MAX_NESTING;
 * KW_ERR_REQUEST_TOO_LARGE if the message has thousands of fields that are unknown, or that replace each other; or
 * KW_ERR_NO_MEMORY if the arena could not grow. After an error the record is partly filled. */
int kw_message_decode(const kw_message *message, kw_slice bytes, kw_arena *arena, void *record);

/* Like kw_message_decode; also returns KW_ERR_TOO_MANY_OPS if all lists together have more than `items` items. */
int kw_message_decode_within(const kw_message *message, kw_slice bytes, size_t items,
                             kw_arena *arena, void *record);

/* Returns the size of the encoded record in bytes. */
size_t kw_message_size(const kw_message *message, const void *record);

/* Encodes a record at `to`, a buffer of kw_message_size bytes. Returns the end of the written bytes. Fields are in the
 * order of their numbers. */
uint8_t *kw_message_put(const kw_message *message, const void *record, uint8_t *to);

/* Like kw_message_size, without the first field: the header of an answer, which the caller writes. */
size_t kw_message_rest_size(const kw_message *message, const void *record);

/* Like kw_message_put, without the first field. */
uint8_t *kw_message_put_rest(const kw_message *message, const void *record, uint8_t *to);

#endif
