/* SPDX-License-Identifier: MIT */
#include "rpc/watch_answer.h"

#include "codec/wire.h"

/* Numbers of fields. */
enum {
  HEADER = 1,
  WATCH_ID = 2,
  CREATED = 3,
  CANCELED = 4,
  COMPACT_REVISION = 5,
  CANCEL_REASON = 6,
  FRAGMENT = 7,
  EVENTS = 11
};

static bool read_header(kw_slice bytes, kw_header *header) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  int64_t *const places[] = {&header->cluster_id, &header->member_id, &header->revision,
                             &header->raft_term};
  while (kw_wire_next(&reader, &field)) {
    if (field.number >= 1 && field.number <= 4 && field.type == KW_WIRE_VARINT)
      *places[field.number - 1] = (int64_t)field.value;
  }
  return !reader.failed;
}

static bool read_number(const kw_wire_field *field, kw_watch_response *to) {
  int64_t v = (int64_t)field->value;
  if (field->type != KW_WIRE_VARINT) return false;
  switch (field->number) {
    case WATCH_ID: to->watch_id = v; break;
    case CREATED: to->created = v != 0; break;
    case CANCELED: to->canceled = v != 0; break;
    case COMPACT_REVISION: to->compact_revision = v; break;
    default: to->fragment = v != 0; break;
  }
  return true;
}

/* True if there can be a revision after this one. */
static bool is_possible(int64_t revision) {
  return revision >= 0 && revision < INT64_MAX;
}

static bool read_event(const kw_wire_field *field, kw_watch_answer *to) {
  if (field->type != KW_WIRE_BYTES || !kw_event_decode(field->bytes, &to->event)) return false;
  int64_t revision = to->event.kv.mod_revision;
  if (revision <= 0 || !is_possible(revision) || revision < to->last_revision) return false;
  to->last_revision = revision;
  to->n_events++;
  return true;
}

static bool read_field(const kw_wire_field *field, kw_watch_answer *to) {
  bool is_bytes = field->type == KW_WIRE_BYTES;
  switch (field->number) {
    case HEADER:
      return is_bytes && read_header(field->bytes, &to->header) && is_possible(to->header.revision);
    case CANCEL_REASON: to->fields.cancel_reason = field->bytes; return is_bytes;
    case EVENTS: return read_event(field, to);
    default: return field->number > FRAGMENT || read_number(field, &to->fields);
  }
}

bool kw_watch_answer_read(kw_slice bytes, int64_t last, kw_watch_answer *to) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  *to = (kw_watch_answer){.last_revision = last};
  while (kw_wire_next(&reader, &field)) {
    if (!read_field(&field, to)) return false;
  }
  return !reader.failed;
}
