/* SPDX-License-Identifier: MIT
 *
 * describe: macros that define the descriptions of protobuf messages: kw_message, and its list of kw_field. Only the
 * source files of this folder include this header, because the names of the macros are short.
 *
 *   static const kw_field put_request_fields[] = {
 *       {BYTES(1, key, AT(kw_put_op, key))},             number, name, offset in the record
 *       {INT64(3, lease, AT(kw_put_op, lease))},
 *   };
 *   RECORD_MESSAGE(put_request, PutRequest, kw_put_op);  kw_msg_put_request
 */
#ifndef KW_CODEC_DESCRIBE_H
#define KW_CODEC_DESCRIBE_H

#include "codec/message.h"

/* {====== Fields ====== */

/* The offset of a field: the offset of a member of the record, or NONE if the record does not have the field. */
#define AT(record, member) offsetof(record, member)
#define NONE KW_NO_OFFSET

#define FIELD(n, label, type, at) .name = #label, .number = n, .kind = KW_FIELD_##type, .offset = at
#define INT64(n, label, at) FIELD(n, label, INT64, at)
#define UINT64(n, label, at) FIELD(n, label, UINT64, at)
#define UINT32(n, label, at) FIELD(n, label, UINT32, at)
#define BOOL(n, label, at) FIELD(n, label, BOOL, at)
#define BYTES(n, label, at) FIELD(n, label, BYTES, at)
#define STRING(n, label, at) FIELD(n, label, STRING, at)
#define ENUM(n, label, list, at) FIELD(n, label, ENUM, at), .names = list

/* A message inside a message. NESTED takes any kw_message; MESSAGE takes a symbol of KW_MESSAGES. */
#define NESTED(n, label, description, at) FIELD(n, label, MESSAGE, at), .message = &(description)
#define MESSAGE(n, label, symbol, at) NESTED(n, label, kw_msg_##symbol, at)

/* Properties of a field, see kw_field. */
#define LIST .is_repeated = true
#define CHOICE .is_choice = true
#define ENCODED .is_encoded = true
#define ALWAYS .is_always = true
#define BARE_IF(record, member) .bare = offsetof(record, member)

/* The header of an answer. Records do not have it: it is written separately, see kw_message_put_rest. */
#define HEADER                                                                                     \
  { MESSAGE(1, header, response_header, NONE) }

/* }====== */

/* {====== Messages ====== */

/* The description of a message with the fields symbol##_fields. `bytes` is the size of its record. `at` is the
 * offset of the int of its oneof, or NONE. */
#define DESCRIPTION(symbol, label, bytes, at)                                                      \
  {                                                                                                \
    .name = #label, .fields = symbol##_fields, .n = KW_LENGTH(symbol##_fields), .size = bytes,     \
    .choice = at                                                                                   \
  }

/* A message with a record in C. */
#define RECORD_MESSAGE(symbol, label, record)                                                      \
  const kw_message kw_msg_##symbol = DESCRIPTION(symbol, label, sizeof(record), NONE)

/* A message with a record in C that consists of one oneof. `member` is the int with the number of the field that is
 * set. */
#define CHOICE_MESSAGE(symbol, label, record, member)                                              \
  const kw_message kw_msg_##symbol =                                                               \
      DESCRIPTION(symbol, label, sizeof(record), offsetof(record, member))

/* A message without a record in C, only for Lua. Its fields follow. */
#define LUA_MESSAGE(symbol, label, ...)                                                            \
  static const kw_field symbol##_fields[] = {__VA_ARGS__};                                         \
  const kw_message kw_msg_##symbol = DESCRIPTION(symbol, label, 0, NONE)

/* A message without fields. */
#define EMPTY(symbol, label) const kw_message kw_msg_##symbol = {.name = #label, .choice = NONE}

/* An answer with only a header. */
#define HEADER_ONLY(symbol, label)                                                                 \
  const kw_message kw_msg_##symbol = {                                                             \
      .name = #label, .fields = kw_header_only, .n = 1, .choice = NONE}

extern const kw_field kw_header_only[1];

/* }====== */

#endif
