/* SPDX-License-Identifier: MIT
 *
 * wire: the wire format of protobuf. etcd's messages use varints and length-delimited bytes; fixed numbers are read and
 * skipped. Groups are malformed: proto3 has none.
 *
 * Functions that write take a pointer to a large enough buffer, and return the end of the written bytes. A reader
 * trusts no length: a malformed byte sets `failed`, and ends the reading.
 */
#ifndef KW_CODEC_WIRE_H
#define KW_CODEC_WIRE_H

#include "base/slice.h"

typedef enum kw_wire_type {
  KW_WIRE_VARINT = 0,
  KW_WIRE_FIXED64 = 1,
  KW_WIRE_BYTES = 2,
  KW_WIRE_FIXED32 = 5
} kw_wire_type;

/* The tag of a field: its number and its wire type. */
#define KW_WIRE_TAG(field, type) ((uint32_t)(field) << 3 | (type))

/* Returns the size of a varint, from 1 to 10 bytes. */
static inline size_t kw_wire_varint_size(uint64_t v) {
  return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

/* Writes a varint. */
static inline uint8_t *kw_wire_put_varint(uint8_t *to, uint64_t v) {
  while (v >= 0x80) {
    *to++ = (uint8_t)v | 0x80;
    v >>= 7;
  }
  *to++ = (uint8_t)v;
  return to;
}

/* The next four functions measure and write a field whose number is below 16, so that its tag takes one byte. As in
 * proto3, a zero number and empty bytes are not written. */

/* Returns the size of a field with a number. */
static inline size_t kw_wire_number_size(uint64_t v) {
  return v == 0 ? 0 : 1 + kw_wire_varint_size(v);
}

/* Returns the size of a field with `len` bytes. */
static inline size_t kw_wire_bytes_size(size_t len) {
  return len == 0 ? 0 : 1 + kw_wire_varint_size(len) + len;
}

/* Writes a field with a number. */
static inline uint8_t *kw_wire_put_number(uint8_t *to, unsigned field, uint64_t v) {
  if (v == 0) return to;
  *to++ = (uint8_t)KW_WIRE_TAG(field, KW_WIRE_VARINT);
  return kw_wire_put_varint(to, v);
}

/* Writes a field with bytes. */
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
} kw_wire_reader;

typedef struct kw_wire_field {
  uint32_t number;
  kw_wire_type type;
  uint64_t value; /* of a varint or a fixed number */
  kw_slice bytes; /* of a BYTES field: a slice of the bytes that are read */
} kw_wire_field;

/* Returns a reader of a message, which borrows `bytes`. */
static inline kw_wire_reader kw_wire_read(kw_slice bytes) {
  return (kw_wire_reader){.at = bytes.data, .end = bytes.data + bytes.len};
}

/* Reads the next field. Returns false at the end; and also, with `failed` set, if the message is malformed. */
bool kw_wire_next(kw_wire_reader *reader, kw_wire_field *field);

/* Reads a varint without a tag. Returns false, with `failed` set, if it is malformed or missing. */
bool kw_wire_next_varint(kw_wire_reader *reader, uint64_t *v);

#endif
