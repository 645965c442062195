/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "disk/journal_segment.h"
#include "model/error.h"

/* A recovery under way. */
typedef struct recovery {
  const char *directory;
  uint64_t store_id;
  int64_t applied;
  uint64_t epoch;
  kw_journal_recovered *result;
  char *why;

  kw_journal_segment segments[KW_JOURNAL_SLOTS]; /* open ones, in the order of their numbers */
  int n;

  int64_t last;      /* sequence of the last frame whose header was read; 0: none */
  uint32_t last_crc; /* of its header */
  bool is_broken;    /* the payload of a frame beyond `applied` is not whole: no frame may follow */
  kw_revision newest;
} recovery;

/* {====== Refusing ====== */

static int refuse(const recovery *r, const kw_journal_segment *segment, const char *text) {
  char name[KW_JOURNAL_NAME_ROOM];
  snprintf(r->why, KW_JOURNAL_WHY_ROOM, "%s %s", kw_journal_segment_name(segment->slot, name),
           text);
  return KW_ERR_CORRUPT;
}

static int refuse_loss(const recovery *r, const kw_journal_segment *segment, int64_t first,
                       int64_t last) {
  char text[128];
  if (first == last) {
    snprintf(text, sizeof text, "has group %lld, but group %lld before it is lost",
             (long long)last + 1, (long long)last);
    return refuse(r, segment, text);
  }
  snprintf(text, sizeof text, "has group %lld, but the groups %lld to %lld before it are lost",
           (long long)last + 1, (long long)first, (long long)last);
  return refuse(r, segment, text);
}

static int no_memory(const recovery *r) {
  snprintf(r->why, KW_JOURNAL_WHY_ROOM, "the journal takes more memory than there is");
  return KW_ERR_NO_MEMORY;
}

/* }====== */

/* {====== Frames ====== */

/* Returns the last sequence before which no frame may be missing. */
static int64_t known(const recovery *r) {
  return r->last > r->applied ? r->last : r->applied;
}

/* Judges the place of a frame by its header alone: a frame is written only when all frames before it are durable. */
static int check_place(const recovery *r, const kw_journal_segment *segment,
                       const kw_journal_frame *frame) {
  int64_t sequence = frame->meta.sequence;
  if (r->last != 0 && sequence <= r->last)
    return refuse(r, segment, "is damaged: its groups are out of order");
  if (r->is_broken) return refuse_loss(r, segment, r->last, sequence - 1);
  if (sequence > known(r) + 1) return refuse_loss(r, segment, known(r) + 1, sequence - 1);
  if (sequence == r->last + 1 && r->last != 0 && frame->before != r->last_crc)
    return refuse(r, segment, "is damaged: a group does not follow the one before");
  return KW_OK;
}

static int take_frame(recovery *r, const kw_journal_segment *segment, uint8_t *block,
                      const kw_journal_frame *frame) {
  int rc = check_place(r, segment, frame);
  if (rc != KW_OK) return rc;
  r->last = frame->meta.sequence;
  r->last_crc = frame->crc;
  if (r->last <= r->applied) return KW_OK;
  r->is_broken = !kw_journal_frame_check(block, frame, &r->result->repaired_bits);
  if (r->is_broken) return KW_OK;
  rc = kw_journal_frame_decode(block, frame, r->result, &r->newest);
  if (rc == KW_ERR_NO_MEMORY) return no_memory(r);
  if (rc != KW_OK) return refuse(r, segment, "is damaged: a group is malformed");
  r->result->is_empty = false;
  r->result->groups++;
  return KW_OK;
}

/* Looks for frames at every block of a segment. */
static int walk(recovery *r, const kw_journal_segment *segment, uint8_t *bytes) {
  size_t size = (size_t)segment->size, at = KW_JOURNAL_FRAMES;
  int64_t *repaired_bits = &r->result->repaired_bits;
  kw_journal_frame frame;
  while (at < size) {
    bool is_frame = kw_journal_frame_read(bytes + at, size - at, segment->salt, segment->epoch,
                                          &frame, repaired_bits);
    if (is_frame && segment->epoch > r->epoch)
      return refuse(r, segment, "is newer than the database: was the database restored alone?");
    int rc = is_frame ? take_frame(r, segment, bytes + at, &frame) : KW_OK;
    if (rc != KW_OK) return rc;
    at += is_frame ? kw_journal_frame_size(frame.payload_bytes) : KW_JOURNAL_BLOCK;
  }
  return KW_OK;
}

static int read_frames(recovery *r, const kw_journal_segment *segment) {
  size_t size = (size_t)segment->size;
  char text[128];
  uint8_t *bytes = kw_alloc_pages(size);
  if (bytes == NULL) return no_memory(r);
  errno = 0;
  int rc;
  if (kw_file_read(segment->fd, bytes, size, 0)) {
    rc = walk(r, segment, bytes);
  } else {
    snprintf(text, sizeof text, "cannot be read: %s", errno == 0 ? "it is short" : strerror(errno));
    refuse(r, segment, text);
    rc = KW_ERR_STORAGE;
  }
  kw_free_pages(bytes, size);
  return rc;
}

/* }====== */

/* {====== Segments ====== */

/* Adds a segment to the open ones, by its number. */
static void insert(recovery *r, const kw_journal_segment *segment) {
  int i = r->n++;
  for (; i > 0 && r->segments[i - 1].number > segment->number; i--)
    r->segments[i] = r->segments[i - 1];
  r->segments[i] = *segment;
}

static int open_segments(recovery *r) {
  kw_journal_segment segment;
  for (int slot = 0; slot < KW_JOURNAL_SLOTS; slot++) {
    int rc = kw_journal_segment_open(r->directory, slot, true, &segment, r->why);
    if (rc == KW_ERR_NOT_FOUND) continue;
    if (rc != KW_OK) return rc;
    insert(r, &segment);
    if (segment.store_id != r->store_id)
      return refuse(r, &segment, "is part of the journal of another store");
  }
  return KW_OK;
}

/* Segments of earlier epochs are not read: LMDB has their groups. */
static int read_segments(recovery *r) {
  int64_t last = 0; /* number of the last segment that was read */
  int rc = KW_OK;
  for (int i = 0; rc == KW_OK && i < r->n; i++) {
    const kw_journal_segment *segment = &r->segments[i];
    r->result->last_segment_number = segment->number;
    if (segment->epoch < r->epoch) continue;
    r->result->has_epoch = true;
    if (segment->number == last) return refuse(r, segment, "is a copy of another segment");
    last = segment->number;
    rc = read_frames(r, segment);
  }
  return rc;
}

int kw_journal_recover(const char *directory, uint64_t store_id, int64_t applied, uint64_t epoch,
                       kw_journal_recovered *result, char why[KW_JOURNAL_WHY_ROOM]) {
  recovery r = {.directory = directory,
                .store_id = store_id,
                .applied = applied,
                .epoch = epoch,
                .result = result,
                .why = why};
  *result = (kw_journal_recovered){.is_empty = true};
  why[0] = 0;
  kw_journal_segment_remove_unfinished(directory);
  int rc = open_segments(&r);
  if (rc == KW_OK) rc = read_segments(&r);
  for (int i = 0; i < r.n; i++) kw_journal_segment_close(&r.segments[i]);
  if (rc != KW_OK) kw_journal_recovered_drop(result);
  return rc;
}

void kw_journal_recovered_drop(kw_journal_recovered *result) {
  kw_commit_group_drop(&result->group);
  while (result->n_records > 0) kw_blob_release(result->records[--result->n_records]);
  kw_free(result->records);
  *result = (kw_journal_recovered){0};
}

/* }====== */
