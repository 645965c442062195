/* SPDX-License-Identifier: MIT */
#include "disk/journal_frame.h"

#include "base/big_endian.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "model/error.h"

#define MAGIC "kwjf"
#define MAGIC_BYTES 4

enum {
  MAGIC_AT = 4,
  SALT = 8,
  EPOCH = 16,
  SEQUENCE = 24,
  REVISION = 32,
  COMPACT_REVISION = 40,
  COMPACTED_UNTIL = 48,
  ALARMS = 56,
  PAYLOAD_BYTES = 64,
  PAYLOAD_CRC = 68,
  BEFORE = 72,
  CHANGES = 76
};

size_t kw_journal_frame_size(size_t payload_bytes) {
  size_t size = KW_JOURNAL_FRAME_HEADER + payload_bytes;
  return (size + KW_JOURNAL_BLOCK - 1) / KW_JOURNAL_BLOCK * KW_JOURNAL_BLOCK;
}

/* {====== Writing ====== */

static size_t change_bytes(const kw_commit_change *c) {
  switch (c->kind) {
    case KW_COMMIT_PUT: return 1 + 1 + 8 + 4 + 4 + (size_t)c->record->len;
    case KW_COMMIT_REMOVE: return 1 + 1 + 8 + 4;
    case KW_COMMIT_PUT_LEASE: return 1 + 8 + 8;
    case KW_COMMIT_REMOVE_LEASE: return 1 + 8;
    case KW_COMMIT_PUT_ROW: return 1 + 4 + (size_t)c->name->len + 4 + (size_t)c->row->len;
    case KW_COMMIT_REMOVE_ROW: return 1 + 4 + (size_t)c->name->len;
    case KW_COMMIT_SPAN: break; /* a walk does not return it */
  }
  return 0;
}

static size_t payload_bytes(const kw_commit_group *group) {
  size_t sum = 0;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;) sum += change_bytes(c);
  return sum;
}

size_t kw_journal_frame_bytes(const kw_commit_group *group) {
  return kw_journal_frame_size(payload_bytes(group));
}

static uint8_t *put_blob(uint8_t *to, const kw_blob *blob) {
  to = kw_big_endian_put32(to, blob->len);
  if (blob->len > 0) memcpy(to, blob->bytes, blob->len);
  return to + blob->len;
}

static uint8_t *put_revision(uint8_t *to, const kw_commit_change *c) {
  *to++ = c->tombstone;
  return kw_big_endian_put32(kw_big_endian_put64(to, (uint64_t)c->main), c->sub);
}

static uint8_t *put_change(uint8_t *to, const kw_commit_change *c) {
  *to++ = (uint8_t)c->kind;
  switch (c->kind) {
    case KW_COMMIT_PUT: return put_blob(put_revision(to, c), c->record);
    case KW_COMMIT_REMOVE: return put_revision(to, c);
    case KW_COMMIT_PUT_LEASE:
      return kw_big_endian_put64(kw_big_endian_put64(to, (uint64_t)c->lease), (uint64_t)c->ttl);
    case KW_COMMIT_REMOVE_LEASE: return kw_big_endian_put64(to, (uint64_t)c->lease);
    case KW_COMMIT_PUT_ROW: return put_blob(put_blob(to, c->name), c->row);
    case KW_COMMIT_REMOVE_ROW: return put_blob(to, c->name);
    case KW_COMMIT_SPAN: break;
  }
  return to;
}

static void put_header(uint8_t *to, kw_journal_frame *frame) {
  const kw_commit_meta *meta = &frame->meta;
  memcpy(to + MAGIC_AT, MAGIC, MAGIC_BYTES);
  kw_big_endian_put64(to + SALT, frame->salt);
  kw_big_endian_put64(to + EPOCH, frame->epoch);
  kw_big_endian_put64(to + SEQUENCE, (uint64_t)meta->sequence);
  kw_big_endian_put64(to + REVISION, (uint64_t)meta->revision);
  kw_big_endian_put64(to + COMPACT_REVISION, (uint64_t)meta->compact_revision);
  kw_big_endian_put64(to + COMPACTED_UNTIL, (uint64_t)meta->compacted_until);
  kw_big_endian_put64(to + ALARMS, (uint64_t)meta->alarms);
  kw_big_endian_put32(to + PAYLOAD_BYTES, frame->payload_bytes);
  kw_big_endian_put32(to + PAYLOAD_CRC, frame->payload_crc);
  kw_big_endian_put32(to + BEFORE, frame->before);
  kw_big_endian_put32(to + CHANGES, frame->changes);
  frame->crc = kw_crc32c(0, kw_slice_of(to + MAGIC_AT, KW_JOURNAL_FRAME_HEADER - MAGIC_AT));
  kw_big_endian_put32(to, frame->crc);
}

void kw_journal_frame_seal(uint8_t *to, kw_journal_frame *frame) {
  size_t end = KW_JOURNAL_FRAME_HEADER + frame->payload_bytes;
  kw_slice payload = kw_slice_of(to + KW_JOURNAL_FRAME_HEADER, frame->payload_bytes);
  memset(to + end, 0, kw_journal_frame_size(frame->payload_bytes) - end);
  frame->payload_crc = kw_crc32c(0, payload);
  put_header(to, frame);
}

void kw_journal_frame_encode(uint8_t *to, const kw_commit_group *group, kw_journal_frame *frame) {
  uint8_t *payload = to + KW_JOURNAL_FRAME_HEADER, *end = payload;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;)
    end = put_change(end, c);
  frame->meta = group->meta;
  frame->payload_bytes = (uint32_t)(end - payload);
  frame->changes = (uint32_t)group->n;
  kw_journal_frame_seal(to, frame);
}

/* }====== */

/* {====== Reading ====== */

static void get_header(const uint8_t *from, kw_journal_frame *frame) {
  *frame = (kw_journal_frame){
      .crc = kw_big_endian_get32(from),
      .salt = kw_big_endian_get64(from + SALT),
      .epoch = kw_big_endian_get64(from + EPOCH),
      .meta = {.sequence = (int64_t)kw_big_endian_get64(from + SEQUENCE),
               .revision = (int64_t)kw_big_endian_get64(from + REVISION),
               .compact_revision = (int64_t)kw_big_endian_get64(from + COMPACT_REVISION),
               .compacted_until = (int64_t)kw_big_endian_get64(from + COMPACTED_UNTIL),
               .alarms = (int64_t)kw_big_endian_get64(from + ALARMS)},
      .payload_bytes = kw_big_endian_get32(from + PAYLOAD_BYTES),
      .payload_crc = kw_big_endian_get32(from + PAYLOAD_CRC),
      .before = kw_big_endian_get32(from + BEFORE),
      .changes = kw_big_endian_get32(from + CHANGES),
  };
}

static bool is_sound(const kw_commit_meta *meta) {
  return meta->sequence > 0 && meta->sequence <= KW_MAX_REVISION && meta->revision >= 0 &&
         meta->revision <= KW_MAX_REVISION && meta->compact_revision >= -1 &&
         meta->compact_revision <= KW_MAX_REVISION && meta->compacted_until >= 0 &&
         meta->compacted_until <= KW_MAX_REVISION;
}

bool kw_journal_frame_read(const uint8_t header[KW_JOURNAL_FRAME_HEADER], size_t room,
                           uint64_t salt, kw_journal_frame *frame) {
  kw_slice summed = kw_slice_of(header + MAGIC_AT, KW_JOURNAL_FRAME_HEADER - MAGIC_AT);
  if (memcmp(header + MAGIC_AT, MAGIC, MAGIC_BYTES) != 0) return false;
  get_header(header, frame);
  return frame->salt == salt && frame->crc == kw_crc32c(0, summed) &&
         frame->payload_bytes <= room - KW_JOURNAL_FRAME_HEADER && is_sound(&frame->meta);
}

bool kw_journal_frame_check(const uint8_t *payload, const kw_journal_frame *frame) {
  return kw_crc32c(0, kw_slice_of(payload, frame->payload_bytes)) == frame->payload_crc;
}

/* Takes `len` bytes from the front of the rest. Returns false if there are fewer. */
static bool take(kw_slice *rest, size_t len, kw_slice *taken) {
  if (len > rest->len) return false;
  *taken = kw_slice_of(rest->data, len);
  *rest = kw_slice_of(rest->data + len, rest->len - len);
  return true;
}

static bool take_counted(kw_slice *rest, kw_slice *taken) {
  kw_slice len;
  return take(rest, 4, &len) && take(rest, kw_big_endian_get32(len.data), taken);
}

static bool take_number(kw_slice *rest, int64_t *number) {
  kw_slice bytes;
  if (!take(rest, 8, &bytes)) return false;
  *number = (int64_t)kw_big_endian_get64(bytes.data);
  return true;
}

static bool take_revision(kw_slice *rest, kw_revision *rev, bool *tombstone) {
  kw_slice bytes;
  if (!take(rest, 1 + 8 + 4, &bytes) || bytes.data[0] > 1) return false;
  *tombstone = bytes.data[0] == 1;
  rev->main = (int64_t)kw_big_endian_get64(bytes.data + 1);
  rev->sub = kw_big_endian_get32(bytes.data + 9);
  return rev->main > 0 && rev->main <= KW_MAX_REVISION && rev->sub <= KW_MAX_SUB;
}

static int add_record(kw_journal_recovered *result, kw_revision rev, bool tombstone,
                      kw_slice bytes) {
  if (!kw_reserve(&result->records, &result->cap_records, result->n_records + 1,
                  sizeof *result->records))
    return KW_ERR_NO_MEMORY;
  kw_blob *record = kw_blob_copy(bytes);
  if (record == NULL) return KW_ERR_NO_MEMORY;
  result->records[result->n_records++] = record;
  return kw_commit_group_put(&result->group, rev, tombstone, record) ? KW_OK : KW_ERR_NO_MEMORY;
}

static int decode_put(kw_slice *rest, kw_journal_recovered *result, kw_revision *newest) {
  kw_revision rev;
  kw_slice record;
  bool tombstone;
  if (!take_revision(rest, &rev, &tombstone) || !take_counted(rest, &record)) return KW_ERR_CORRUPT;
  if (kw_revision_compare(rev, *newest) <= 0) return KW_ERR_CORRUPT;
  *newest = rev;
  return add_record(result, rev, tombstone, record);
}

static int decode_remove(kw_slice *rest, kw_commit_group *group) {
  kw_revision rev;
  bool tombstone;
  if (!take_revision(rest, &rev, &tombstone)) return KW_ERR_CORRUPT;
  return kw_commit_group_remove(group, rev, tombstone) ? KW_OK : KW_ERR_NO_MEMORY;
}

static int decode_lease(kw_slice *rest, kw_commit_group *group, bool is_put) {
  int64_t id, ttl;
  if (!take_number(rest, &id) || (is_put && !take_number(rest, &ttl))) return KW_ERR_CORRUPT;
  bool ok =
      is_put ? kw_commit_group_put_lease(group, id, ttl) : kw_commit_group_remove_lease(group, id);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

static int decode_row(kw_slice *rest, kw_commit_group *group, bool is_put) {
  kw_slice name, bytes = {0};
  if (!take_counted(rest, &name) || (is_put && !take_counted(rest, &bytes))) return KW_ERR_CORRUPT;
  kw_blob *key = kw_blob_copy(name), *row = is_put ? kw_blob_copy(bytes) : NULL;
  bool ok = key != NULL && (row != NULL || !is_put);
  if (ok)
    ok = is_put ? kw_commit_group_put_row(group, key, row) : kw_commit_group_remove_row(group, key);
  if (key != NULL) kw_blob_release(key);
  if (row != NULL) kw_blob_release(row);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

static int decode_change(kw_slice *rest, kw_journal_recovered *result, kw_revision *newest) {
  kw_slice kind;
  if (!take(rest, 1, &kind)) return KW_ERR_CORRUPT;
  switch (kind.data[0]) {
    case KW_COMMIT_PUT: return decode_put(rest, result, newest);
    case KW_COMMIT_REMOVE: return decode_remove(rest, &result->group);
    case KW_COMMIT_PUT_LEASE:
    case KW_COMMIT_REMOVE_LEASE:
      return decode_lease(rest, &result->group, kind.data[0] == KW_COMMIT_PUT_LEASE);
    case KW_COMMIT_PUT_ROW:
    case KW_COMMIT_REMOVE_ROW:
      return decode_row(rest, &result->group, kind.data[0] == KW_COMMIT_PUT_ROW);
    default: return KW_ERR_CORRUPT;
  }
}

int kw_journal_frame_decode(const uint8_t *payload, const kw_journal_frame *frame,
                            kw_journal_recovered *result, kw_revision *newest) {
  kw_slice rest = kw_slice_of(payload, frame->payload_bytes);
  int rc = KW_OK;
  for (uint32_t i = 0; rc == KW_OK && i < frame->changes; i++)
    rc = decode_change(&rest, result, newest);
  if (rc == KW_OK && rest.len > 0) rc = KW_ERR_CORRUPT;
  if (rc == KW_OK) result->group.meta = frame->meta;
  return rc;
}

/* }====== */
