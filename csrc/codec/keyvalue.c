/* SPDX-License-Identifier: MIT */
#include "codec/keyvalue.h"

enum { KEY = 1, CREATE_REVISION, MOD_REVISION, VERSION, VALUE, LEASE };

static size_t size_of(const kw_kv *kv) {
  return kw_wire_bytes_size(kv->key.len) + kw_wire_number_size((uint64_t)kv->create_revision) +
         kw_wire_number_size((uint64_t)kv->mod_revision) +
         kw_wire_number_size((uint64_t)kv->version) + kw_wire_bytes_size(kv->value.len) +
         kw_wire_number_size((uint64_t)kv->lease);
}

kw_blob *kw_keyvalue_encode(const kw_kv *kv) {
  kw_blob *blob = kw_blob_new(size_of(kv));
  if (blob == NULL) return NULL;
  uint8_t *to = blob->bytes;
  to = kw_wire_put_bytes(to, KEY, kv->key);
  to = kw_wire_put_number(to, CREATE_REVISION, (uint64_t)kv->create_revision);
  to = kw_wire_put_number(to, MOD_REVISION, (uint64_t)kv->mod_revision);
  to = kw_wire_put_number(to, VERSION, (uint64_t)kv->version);
  to = kw_wire_put_bytes(to, VALUE, kv->value);
  to = kw_wire_put_number(to, LEASE, (uint64_t)kv->lease);
  assert(to == blob->bytes + blob->len);
  return blob;
}

static bool set_field(kw_kv *kv, const kw_wire_field *field) {
  int64_t number = (int64_t)field->value;
  bool is_bytes = field->number == KEY || field->number == VALUE;
  if (field->number > LEASE) return true; /* an unknown field is skipped */
  if (field->type != (is_bytes ? KW_WIRE_BYTES : KW_WIRE_VARINT)) return false;
  switch (field->number) {
    case KEY: kv->key = field->bytes; break;
    case CREATE_REVISION: kv->create_revision = number; break;
    case MOD_REVISION: kv->mod_revision = number; break;
    case VERSION: kv->version = number; break;
    case VALUE: kv->value = field->bytes; break;
    case LEASE: kv->lease = number; break;
  }
  return true;
}

bool kw_keyvalue_decode(kw_slice bytes, kw_kv *kv) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  *kv = (kw_kv){0};
  while (kw_wire_next(&reader, &field)) {
    if (!set_field(kv, &field)) return false;
  }
  return !reader.failed;
}

/* Returns the field of the value in a record, with its tag and its length; without a value, an empty slice at the end
 * of the record. */
static kw_slice value_field(const kw_blob *record) {
  kw_slice value = kw_keyvalue_of(record).value;
  size_t len = kw_wire_bytes_size(value.len);
  if (len == 0) return kw_slice_of(record->bytes + record->len, 0);
  return kw_slice_of(value.data + value.len - len, len);
}

size_t kw_keyvalue_bare_size(const kw_blob *record) {
  return record->len - value_field(record).len;
}

uint8_t *kw_keyvalue_put_bare(const kw_blob *record, uint8_t *to) {
  kw_slice value = value_field(record);
  size_t before = (size_t)(value.data - record->bytes);
  size_t after = record->len - before - value.len;
  memcpy(to, record->bytes, before);
  memcpy(to + before, value.data + value.len, after);
  return to + before + after;
}

bool kw_keyvalue_add_bare(kw_chain *out, uint8_t number, const kw_blob *record) {
  size_t len = kw_keyvalue_bare_size(record);
  uint8_t *start = kw_chain_reserve(out, 1 + 10 + len);
  if (start == NULL) return false;
  *start = KW_WIRE_TAG(number, KW_WIRE_BYTES);
  uint8_t *to = kw_keyvalue_put_bare(record, kw_wire_put_varint(start + 1, len));
  kw_chain_commit(out, (size_t)(to - start));
  return true;
}
