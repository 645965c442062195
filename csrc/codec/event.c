/* SPDX-License-Identifier: MIT */
#include "codec/event.h"

#include "codec/keyvalue.h"
#include "codec/wire.h"

#define EVENTS_TAG KW_WIRE_TAG(KW_WATCH_RESPONSE_EVENTS, KW_WIRE_BYTES)
/* The tags of Event: */
#define TYPE_TAG KW_WIRE_TAG(1, KW_WIRE_VARINT)
#define KV_TAG KW_WIRE_TAG(2, KW_WIRE_BYTES)
#define PREV_KV_TAG KW_WIRE_TAG(3, KW_WIRE_BYTES)

enum { MOD_REVISION = 3, DELETE = 1 };

static size_t field_size(size_t len) {
  return 1 + kw_wire_varint_size(len) + len;
}

static size_t kv_size(const kw_event *event) {
  size_t revision = event->is_delete ? kw_wire_number_size((uint64_t)event->revision) : 0;
  return event->record->len + revision;
}

static size_t body_size(const kw_event *event) {
  size_t prev = event->prev != NULL ? field_size(event->prev->len) : 0;
  return (event->is_delete ? 2 : 0) + field_size(kv_size(event)) + prev;
}

size_t kw_event_size(const kw_event *event) {
  return field_size(body_size(event));
}

size_t kw_event_size_with(const kw_event *event, size_t prev_len) {
  return field_size(body_size(event) + field_size(prev_len));
}

static uint8_t *put_head(uint8_t *to, uint8_t tag, size_t len) {
  *to++ = tag;
  return kw_wire_put_varint(to, len);
}

static uint8_t *put_record(uint8_t *to, const kw_blob *record) {
  memcpy(to, record->bytes, record->len);
  return to + record->len;
}

uint8_t *kw_event_put(const kw_event *event, uint8_t *to) {
  to = put_head(to, EVENTS_TAG, body_size(event));
  if (event->is_delete) {
    *to++ = TYPE_TAG;
    *to++ = DELETE;
  }
  to = put_head(to, KV_TAG, kv_size(event));
  to = put_record(to, event->record);
  if (event->is_delete) to = kw_wire_put_number(to, MOD_REVISION, (uint64_t)event->revision);
  if (event->prev == NULL) return to;
  to = put_head(to, PREV_KV_TAG, event->prev->len);
  return put_record(to, event->prev);
}

bool kw_event_decode(kw_slice bytes, kw_event_fields *event) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  *event = (kw_event_fields){0};
  while (kw_wire_next(&reader, &field)) {
    if (field.number == 1) event->is_delete = field.type == KW_WIRE_VARINT && field.value == 1;
    if (field.number != 2 && field.number != 3) continue;
    if (field.type != KW_WIRE_BYTES) return false;
    if (field.number == 2 && !kw_keyvalue_decode(field.bytes, &event->kv)) return false;
    if (field.number == 3 && !kw_keyvalue_decode(field.bytes, &event->prev)) return false;
    event->has_prev = event->has_prev || field.number == 3;
  }
  return !reader.failed;
}
