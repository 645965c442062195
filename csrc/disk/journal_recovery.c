/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/order.h"
#include "disk/journal_segment.h"
#include "model/error.h"

/* A frame whose header was read. */
typedef struct found {
  kw_journal_frame frame;
  const kw_journal_segment *segment;
  int64_t at; /* offset in the segment */
} found;

/* The state of a recovery. */
typedef struct recovery {
  const char *directory;
  const kw_journal_expected *expected;
  kw_journal_recovered *result;
  char *why;
  kw_journal_segment segments[KW_JOURNAL_SEGMENTS]; /* by slot */
  found *frames; /* frames of the epoch, of groups after the applied ones */
  size_t n;
  size_t cap;
} recovery;

/* {====== Refusing ====== */

static int refuse(const recovery *r, const kw_journal_segment *segment, const char *text) {
  char name[KW_JOURNAL_NAME_ROOM];
  snprintf(r->why, KW_JOURNAL_WHY_ROOM, "%s %s", kw_journal_segment_name(segment->slot, name),
           text);
  return KW_ERR_CORRUPT;
}

/* Reports that the groups from `first` up to the one before a frame are lost. */
static int refuse_loss(const recovery *r, const found *f, int64_t first) {
  char text[128];
  int64_t sequence = f->frame.meta.sequence, last = sequence - 1;
  if (first == last) {
    snprintf(text, sizeof text, "has group %lld, but group %lld before it is lost",
             (long long)sequence, (long long)last);
  } else {
    snprintf(text, sizeof text, "has group %lld, but the groups %lld to %lld before it are lost",
             (long long)sequence, (long long)first, (long long)last);
  }
  return refuse(r, f->segment, text);
}

static int refuse_unreadable(const recovery *r, const kw_journal_segment *segment) {
  char text[128];
  snprintf(text, sizeof text, "cannot be read: %s", errno == 0 ? "it is short" : strerror(errno));
  refuse(r, segment, text);
  return KW_ERR_STORAGE;
}

static int no_memory(const recovery *r) {
  snprintf(r->why, KW_JOURNAL_WHY_ROOM, "the journal takes more memory than there is");
  return KW_ERR_NO_MEMORY;
}

/* }====== */

/* {====== Finding frames ====== */

static int add_frame(recovery *r, const found *f) {
  if (!kw_reserve(&r->frames, &r->cap, r->n + 1, sizeof *r->frames)) return no_memory(r);
  r->frames[r->n++] = *f;
  return KW_OK;
}

/* Searches for a frame at every block of a segment. */
static int find_frames(recovery *r, const kw_journal_segment *segment) {
  uint8_t header[KW_JOURNAL_FRAME_HEADER];
  found f = {.segment = segment, .at = KW_JOURNAL_FRAMES};
  int64_t end = r->expected->is_closed ? f.at + KW_JOURNAL_BLOCK : segment->size;
  int rc = KW_OK;
  while (rc == KW_OK && f.at < end) {
    size_t room = (size_t)(segment->size - f.at), bytes = KW_JOURNAL_BLOCK;
    errno = 0;
    if (!kw_file_read(segment->fd, header, sizeof header, f.at))
      return refuse_unreadable(r, segment);
    bool is_frame = kw_journal_frame_read(header, room, segment->salt, &f.frame);
    if (is_frame && f.frame.epoch > r->expected->epoch)
      return refuse(r, segment, "is newer than the database: was only the database restored?");
    if (is_frame && f.frame.epoch == r->expected->epoch &&
        f.frame.meta.sequence > r->expected->applied) {
      rc = add_frame(r, &f);
      bytes = kw_journal_frame_size(f.frame.payload_bytes);
    }
    f.at += (int64_t)bytes;
  }
  return rc;
}

static int find_all(recovery *r) {
  for (int slot = 0; slot < KW_JOURNAL_SEGMENTS; slot++) {
    kw_journal_segment *segment = &r->segments[slot];
    int rc = kw_journal_segment_open(r->directory, slot, true, segment, r->why);
    if (rc == KW_ERR_NOT_FOUND) continue;
    if (rc != KW_OK) return rc;
    if (segment->store_id != r->expected->store_id)
      return refuse(r, segment, "is part of the journal of another store");
    r->result->has_files = true;
    rc = find_frames(r, segment);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int compare(const void *a, const void *b) {
  int64_t one = ((const found *)a)->frame.meta.sequence;
  int64_t other = ((const found *)b)->frame.meta.sequence;
  return kw_order_signed(one, other);
}

/* }====== */

/* {====== Taking frames ====== */

/* Checks that the frames are consecutive, by their headers only: a frame is written only when the previous frame is
 * durable. */
static int check_order(const recovery *r) {
  int64_t next = r->expected->applied + 1;
  for (size_t i = 0; i < r->n; i++) {
    const found *f = &r->frames[i];
    if (f->frame.meta.sequence < next)
      return refuse(r, f->segment, "is damaged: another segment has the same group");
    if (f->frame.meta.sequence > next) return refuse_loss(r, f, next);
    if (i > 0 && f->frame.before != f[-1].frame.crc)
      return refuse(r, f->segment, "is damaged: a group does not follow the one before");
    next++;
  }
  return KW_OK;
}

/* Decodes a frame. Only the last frame may be torn. */
static int take_payload(recovery *r, const found *f, const uint8_t *payload, kw_revision *newest) {
  if (!kw_journal_frame_check(payload, &f->frame)) {
    bool is_last = f == r->frames + r->n - 1;
    return is_last ? KW_OK : refuse_loss(r, f + 1, f->frame.meta.sequence);
  }
  int rc = kw_journal_frame_decode(payload, &f->frame, r->result, newest);
  if (rc == KW_ERR_NO_MEMORY) return no_memory(r);
  if (rc != KW_OK) return refuse(r, f->segment, "is damaged: a group is malformed");
  r->result->groups++;
  return KW_OK;
}

static int take_frame(recovery *r, const found *f, kw_revision *newest) {
  uint8_t *payload = kw_alloc((size_t)f->frame.payload_bytes + 1);
  if (payload == NULL) return no_memory(r);
  errno = 0;
  bool ok = kw_file_read(f->segment->fd, payload, f->frame.payload_bytes,
                         f->at + KW_JOURNAL_FRAME_HEADER);
  int rc = ok ? take_payload(r, f, payload, newest) : refuse_unreadable(r, f->segment);
  kw_free(payload);
  return rc;
}

/* }====== */

int kw_journal_recover(const char *directory, const kw_journal_expected *expected,
                       kw_journal_recovered *result, char why[KW_JOURNAL_WHY_ROOM]) {
  recovery r = {.directory = directory, .expected = expected, .result = result, .why = why};
  kw_revision newest = {0};
  *result = (kw_journal_recovered){0};
  why[0] = 0;
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) r.segments[i].fd = -1;
  kw_journal_segment_remove_unfinished(directory);
  int rc = find_all(&r);
  if (r.n > 0) qsort(r.frames, r.n, sizeof *r.frames, compare);
  if (rc == KW_OK) rc = check_order(&r);
  for (size_t i = 0; rc == KW_OK && i < r.n; i++) rc = take_frame(&r, &r.frames[i], &newest);
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) kw_journal_segment_close(&r.segments[i]);
  kw_free(r.frames);
  if (rc != KW_OK) kw_journal_recovered_drop(result);
  return rc;
}

void kw_journal_recovered_drop(kw_journal_recovered *result) {
  kw_commit_group_drop(&result->group);
  while (result->n_records > 0) kw_blob_release(result->records[--result->n_records]);
  kw_free(result->records);
  *result = (kw_journal_recovered){0};
}
