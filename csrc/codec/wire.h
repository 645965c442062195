/* SPDX-License-Identifier: MIT
 *
 * wire: the protobuf wire format, as far as etcd's messages use it: varints and length-delimited bytes.
 *
 * Writing goes through a pointer into room that was measured before. Reading goes through a reader that
 * never trusts a length: the first malformed byte sets `failed` and ends it.
 */
#ifndef KW_CODEC_WIRE_H
#define KW_CODEC_WIRE_H

#include "base/slice.h"

typedef enum kw_wire_type {
  KW_WIRE_VARINT = 0,
  KW_WIRE_FIXED64 = 1,
  KW_WIRE_BYTES = 2,
  KW_WIRE_GROUP = 3, /* no message of etcd has one; what is unknown may be one */
  KW_WIRE_GROUP_END = 4,
  KW_WIRE_FIXED32 = 5
} kw_wire_type;

#define KW_WIRE_TAG(field, type) ((uint32_t)(field) << 3 | (type))

static inline size_t kw_wire_varint_size(uint64_t v) {
  return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

static inline uint8_t *kw_wire_put_varint(uint8_t *to, uint64_t v) {
  while (v >= 0x80) {
    *to++ = (uint8_t)v | 0x80;
    v >>= 7;
  }
  *to++ = (uint8_t)v;
  return to;
}

/* A field of a number or of bytes, with a tag below 16; like proto3, nothing for zero and for empty bytes. */
static inline size_t kw_wire_number_size(uint64_t v) {
  return v == 0 ? 0 : 1 + kw_wire_varint_size(v);
}

static inline size_t kw_wire_bytes_size(size_t len) {
  return len == 0 ? 0 : 1 + kw_wire_varint_size(len) + len;
}

static inline uint8_t *kw_wire_put_number(uint8_t *to, unsigned field, uint64_t v) {
  if (v == 0) return to;
  *to++ = (uint8_t)KW_WIRE_TAG(field, KW_WIRE_VARINT);
  return kw_wire_put_varint(to, v);
}

static inline uint8_t *kw_wire_put_bytes(uint8_t *to, unsigned field, kw_slice bytes) {
  if (bytes.len == 0) return to;
  *to++ = (uint8_t)KW_WIRE_TAG(field, KW_WIRE_BYTES);
  to = kw_wire_put_varint(to, bytes.len);
  memcpy(to, bytes.data, bytes.len);
  return to + bytes.len;
}

typedef struct kw_wire_reader {
  const uint8_t *at;
  const uint8_t *end;
  bool failed;
  uint8_t depth; /* of the groups that are being skipped */
} kw_wire_reader;

typedef struct kw_wire_field {
  uint32_t number;
  kw_wire_type type;
  uint64_t value; /* of a number */
  kw_slice bytes; /* of a BYTES field, inside the bytes being read */
} kw_wire_field;

static inline kw_wire_reader kw_wire_read(kw_slice bytes) {
  return (kw_wire_reader){.at = bytes.data, .end = bytes.data + bytes.len};
}

/* Reads the next field; false at the end or upon a failure, which `failed` tells apart. A group comes as one field, and
 * is skipped with all that is inside of it. */
bool kw_wire_next(kw_wire_reader *reader, kw_wire_field *field);

/* Reads a number that stands without a tag; false upon a failure, also at the end. */
bool kw_wire_next_varint(kw_wire_reader *reader, uint64_t *v);

#endif
