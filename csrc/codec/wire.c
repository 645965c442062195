/* SPDX-License-Identifier: MIT */
#include "codec/wire.h"

static bool fail(kw_wire_reader *reader) {
  reader->failed = true;
  return false;
}

static bool next_long(kw_wire_reader *reader, uint64_t *v) {
  uint64_t sum = 0;
  for (unsigned shift = 0; shift < 70 && reader->at < reader->end; shift += 7) {
    uint8_t byte = *reader->at++;
    sum |= (uint64_t)(byte & 0x7f) << shift; /* bits above 64 are dropped, as in etcd */
    if (byte < 0x80) {
      *v = sum;
      return true;
    }
  }
  return fail(reader);
}

static inline bool next_varint(kw_wire_reader *reader, uint64_t *v) {
  if (reader->at == reader->end || *reader->at >= 0x80) return next_long(reader, v);
  *v = *reader->at++; /* most varints are one byte */
  return true;
}

bool kw_wire_next_varint(kw_wire_reader *reader, uint64_t *v) {
  return next_varint(reader, v);
}

static bool next_bytes(kw_wire_reader *reader, size_t len, kw_slice *bytes) {
  if (len > (size_t)(reader->end - reader->at)) return fail(reader);
  *bytes = kw_slice_of(reader->at, len);
  reader->at += len;
  return true;
}

static bool next_fixed(kw_wire_reader *reader, size_t len, uint64_t *v) {
  kw_slice bytes;
  if (!next_bytes(reader, len, &bytes)) return false;
  *v = 0;
  for (size_t i = len; i-- > 0;) *v = *v << 8 | bytes.data[i];
  return true;
}

/* Reads the value of a field that is neither a varint nor bytes. */
static bool next_rare(kw_wire_reader *reader, kw_wire_field *field) {
  switch (field->type) {
    case KW_WIRE_FIXED64: return next_fixed(reader, 8, &field->value);
    case KW_WIRE_FIXED32: return next_fixed(reader, 4, &field->value);
    default: return fail(reader);
  }
}

bool kw_wire_next(kw_wire_reader *reader, kw_wire_field *field) {
  uint64_t tag, len;
  if (reader->failed || reader->at == reader->end) return false;
  if (!next_varint(reader, &tag)) return false;
  if (tag > UINT32_MAX || tag >> 3 == 0) return fail(reader);
  field->number = (uint32_t)(tag >> 3);
  field->type = (kw_wire_type)(tag & 7);
  field->bytes = (kw_slice){0};
  if (field->type == KW_WIRE_VARINT) return next_varint(reader, &field->value);
  if (field->type != KW_WIRE_BYTES) return next_rare(reader, field);
  return next_varint(reader, &len) && next_bytes(reader, len, &field->bytes);
}
