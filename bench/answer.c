/* SPDX-License-Identifier: MIT */
#include "answer.h"

#include "connection.h"
#include "request.h"

static const uint8_t *get_varint(const uint8_t *at, const uint8_t *end, uint64_t *v) {
  *v = 0;
  for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
    *v |= (uint64_t)(*at & 0x7f) << shift;
    if (!(*at++ & 0x80)) return at;
  }
  return NULL;
}

/* Reads the value of a field with a number; or the length of a field with bytes, with *at at the first of them.
 * Returns false if there is none. */
static bool find_field(const uint8_t **at, const uint8_t *end, unsigned field, uint64_t *v) {
  uint64_t tag;
  while (*at != NULL && *at < end) {
    *at = get_varint(*at, end, &tag);
    if (*at == NULL || (*at = get_varint(*at, end, v)) == NULL) return false;
    if (tag >> 3 == field) return true;
    if ((tag & 7) == 2) *at = *v <= (uint64_t)(end - *at) ? *at + *v : NULL;
  }
  return false;
}

int64_t answer_revision(const uint8_t *message, size_t len) {
  const uint8_t *end = message + len;
  uint64_t v;
  if (!find_field(&message, end, 1, &v) || v > (uint64_t)(end - message)) return 0;
  return find_field(&message, message + v, 3, &v) ? (int64_t)v : 0;
}

bool answer_has_succeeded(const uint8_t *message, size_t len) {
  uint64_t v;
  return find_field(&message, message + len, 2, &v) && v == 1;
}

enum reader_state { READ_PREFIX, READ_TAG, READ_NUMBER, READ_LENGTH };

static void end_message(event_reader *r, watch_counts *counts) {
  if (r->is_canceled) die("the server canceled a watcher");
  counts->n_created += r->is_created;
  counts->n_messages += r->n_events > 0;
  counts->n_events += r->n_events;
  *r = (event_reader){0};
}

static void take_prefix(event_reader *r, uint8_t byte) {
  if (r->n_prefix == 0 && byte != 0) die("a compressed message");
  if (r->n_prefix > 0) r->left = r->left << 8 | byte;
  if (++r->n_prefix == GRPC_PREFIX) r->state = READ_TAG;
}

static void take_number(event_reader *r) {
  switch (r->state) {
    case READ_TAG:
      r->field = (uint32_t)(r->number >> 3);
      r->state = (r->number & 7) == 0 ? READ_NUMBER : READ_LENGTH;
      if ((r->number & 7) != 0 && (r->number & 7) != 2) die("a field of an unknown type");
      break;
    case READ_NUMBER:
      if (r->field == 3) r->is_created = r->number != 0;
      if (r->field == 4) r->is_canceled = r->number != 0;
      r->state = READ_TAG;
      break;
    default:
      if (r->number > r->left) die("a field longer than its message");
      if (r->field == 11) r->n_events++;
      r->skip = (uint32_t)r->number;
      r->state = READ_TAG;
  }
  r->number = r->shift = 0;
}

static void take_byte(event_reader *r, uint8_t byte) {
  if (r->state == READ_PREFIX) {
    take_prefix(r, byte);
    return;
  }
  r->left--;
  r->number |= (uint64_t)(byte & 0x7f) << r->shift;
  r->shift += 7;
  if (byte < 0x80)
    take_number(r);
  else if (r->shift > 63)
    die("a number that does not end");
}

void event_reader_feed(event_reader *r, const uint8_t *at, size_t len, watch_counts *counts) {
  const uint8_t *end = at + len;
  while (at < end) {
    if (r->skip > 0) {
      uint32_t n = r->skip < (size_t)(end - at) ? r->skip : (uint32_t)(end - at);
      at += n;
      r->skip -= n;
      r->left -= n;
    } else {
      take_byte(r, *at++);
    }
    if (r->left == 0 && r->state != READ_PREFIX) end_message(r, counts);
  }
}
