/* SPDX-License-Identifier: MIT */
#include <stdatomic.h>

#include "disk/journal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "disk/journal_segment.h"
#include "model/error.h"

#define LEAST_BYTES (KW_JOURNAL_FRAMES + 2 * KW_JOURNAL_BLOCK) /* of a segment */
#define KEPT_BUFFER KW_LIMIT(2 << 20, 8192) /* a larger buffer of frames is freed after use */

typedef struct slot {
  kw_journal_segment segment; /* its `fd` is below 0 if there is no file */
  int64_t next;               /* offset of the next frame */
  atomic_llong last;          /* sequence of the last frame; 0: none in this epoch */
} slot;

/* Only the thread that appends uses the fields that are not atomic. */
struct kw_journal {
  pid_t pid;
  kw_journal_options options;
  uint8_t *buffer; /* for one frame, which begins at a multiple of a block in memory, too */
  size_t buffer_cap;
  slot slots[KW_JOURNAL_SEGMENTS];
  slot *current;         /* takes the next frame; NULL: none */
  uint32_t last_crc;     /* of the header of the last frame */
  int64_t write_ns;      /* duration of the last frame's write */
  uint64_t written;      /* bytes of all frames */
  bool is_failed;        /* every append fails, see kw_journal_append */
  atomic_llong released; /* sequence of the newest released group */
  char directory[];
};

/* {====== Segments ====== */

static bool has_file(const slot *s) {
  return s->segment.fd >= 0;
}

static bool is_free(const kw_journal *journal, const slot *s) {
  return s->last <= journal->released;
}

/* Takes over the file of an earlier epoch. A file that cannot be used is removed: LMDB has its groups. */
static int adopt(kw_journal *journal, int i) {
  char why[KW_JOURNAL_WHY_ROOM];
  int rc = kw_journal_segment_open(journal->directory, i, false, &journal->slots[i].segment, why);
  if (rc == KW_ERR_CORRUPT) kw_journal_segment_remove(journal->directory, i);
  return rc == KW_ERR_CORRUPT || rc == KW_ERR_NOT_FOUND ? KW_OK : rc;
}

/* Makes the file of a segment. If the file cannot be made, for lack of descriptors for example, the journal has not
 * failed. */
static int make(kw_journal *journal, slot *s) {
  const kw_journal_options *options = &journal->options;
  kw_journal_segment made = {.slot = (int)(s - journal->slots),
                             .size = options->segment_bytes,
                             .store_id = options->store_id};
  if (options->is_in_place != NULL && !options->is_in_place(options->ctx)) return KW_ERR_NO_SPACE;
  int rc = kw_journal_segment_make(journal->directory, &made);
  if (rc == KW_OK) s->segment = made;
  return rc == KW_ERR_STORAGE ? KW_ERR_NO_SPACE : rc;
}

/* Returns a slot without a file, or NULL. */
static slot *find_empty(kw_journal *journal) {
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) {
    if (!has_file(&journal->slots[i])) return &journal->slots[i];
  }
  return NULL;
}

/* Returns a free segment with space for `need` bytes of frames, or NULL. */
static slot *find_free(kw_journal *journal, int64_t need) {
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) {
    slot *s = &journal->slots[i];
    if (has_file(s) && is_free(journal, s) && s->segment.size - KW_JOURNAL_FRAMES >= need) return s;
  }
  return NULL;
}

/* Chooses the segment for a frame of `need` bytes. */
static int choose_current(kw_journal *journal, int64_t need) {
  slot *s = journal->current;
  if (s != NULL && s->segment.size - s->next >= need) return KW_OK;
  s = find_free(journal, need);
  if (s == NULL) {
    s = find_empty(journal);
    if (s == NULL || need > journal->options.segment_bytes - KW_JOURNAL_FRAMES)
      return KW_ERR_NO_SPACE;
    int rc = make(journal, s);
    if (rc != KW_OK) return rc;
  }
  s->next = KW_JOURNAL_FRAMES;
  journal->current = s;
  return KW_OK;
}

void kw_journal_release(kw_journal *journal, int64_t sequence) {
  if (sequence > journal->released) journal->released = sequence;
}

bool kw_journal_is_filling(const kw_journal *journal) {
  int n = 0;
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) n += !is_free(journal, &journal->slots[i]);
  return n >= KW_JOURNAL_SEGMENTS / 2;
}

/* }====== */

/* {====== Opening ====== */

/* Returns a size for segments: whole blocks, within bounds. */
static int64_t size_within(int64_t bytes) {
  if (bytes <= 0) bytes = KW_JOURNAL_BYTES;
  if (bytes < LEAST_BYTES) bytes = LEAST_BYTES;
  if (bytes > KW_JOURNAL_MAX_BYTES) bytes = KW_JOURNAL_MAX_BYTES;
  return (bytes + KW_JOURNAL_BLOCK - 1) / KW_JOURNAL_BLOCK * KW_JOURNAL_BLOCK;
}

int kw_journal_open(const char *directory, const kw_journal_options *options, kw_journal **result) {
  size_t len = strlen(directory);
  kw_journal *journal = kw_alloc_zeroed(sizeof *journal + len + 1);
  if (journal == NULL) return KW_ERR_NO_MEMORY;
  memcpy(journal->directory, directory, len + 1);
  journal->pid = kw_process_id();
  journal->options = *options;
  journal->options.segment_bytes = size_within(options->segment_bytes);
  kw_journal_segment_remove_unfinished(directory);
  int rc = KW_OK;
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) journal->slots[i].segment.fd = -1;
  for (int i = 0; rc == KW_OK && i < KW_JOURNAL_SEGMENTS; i++) rc = adopt(journal, i);
  if (rc == KW_OK && find_free(journal, 0) == NULL) rc = make(journal, &journal->slots[0]);
  *result = rc == KW_OK ? journal : NULL;
  if (rc != KW_OK) kw_journal_close(journal);
  return rc;
}

int64_t kw_journal_bytes_in(const char *directory) {
  int64_t sum = 0;
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) sum += kw_journal_segment_bytes_of(directory, i);
  return sum;
}

void kw_journal_remove(const char *directory) {
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++) kw_journal_segment_remove(directory, i);
}

/* In a child: the thread that appends may have been reallocating the buffer when the process forked. */
void kw_journal_close(kw_journal *journal) {
  for (int i = 0; i < KW_JOURNAL_SEGMENTS; i++)
    kw_journal_segment_close(&journal->slots[i].segment);
  if (journal->pid == kw_process_id()) kw_free(journal->buffer);
  kw_free(journal);
}

/* }====== */

/* {====== Appending ====== */

/* Returns where the frame is in the buffer. */
static uint8_t *frame_of(const kw_journal *journal) {
  uintptr_t start = (uintptr_t)journal->buffer;
  return journal->buffer + (KW_JOURNAL_BLOCK - start % KW_JOURNAL_BLOCK) % KW_JOURNAL_BLOCK;
}

/* True if a write has failed for lack of space, and the header of the frame is not in the file, so that there is no
 * frame. A copy-on-write file system may lack space even to overwrite. Blocks after the header may be written: the next
 * frame overwrites them, and recovery finds no header among them. Overwrites the first block of the buffer. */
static bool is_refused(const kw_journal *journal, int number) {
  uint8_t header[KW_JOURNAL_FRAME_HEADER], *block = frame_of(journal);
  const slot *s = journal->current;
  if (!kw_is_no_room(number)) return false;
  memcpy(header, block, sizeof header);
  return kw_journal_segment_read(&s->segment, block, s->next) &&
         memcmp(block, header, sizeof header) != 0;
}

/* A failed write may be durable, fully or in part: nothing is written after it. */
static int write_frame(kw_journal *journal, const kw_commit_group *group, int64_t bytes) {
  slot *s = journal->current;
  kw_journal_frame frame = {
      .salt = s->segment.salt, .epoch = journal->options.epoch, .before = journal->last_crc};
  kw_journal_frame_encode(frame_of(journal), group, &frame);
  int64_t start = kw_clock_ns();
  int number = kw_journal_segment_write(&s->segment, frame_of(journal), (size_t)bytes, s->next);
  journal->write_ns = kw_clock_ns() - start;
  if (is_refused(journal, number)) return KW_ERR_NO_SPACE;
  if (number != 0) {
    journal->is_failed = true;
    return kw_error_storage(number);
  }
  s->next += bytes;
  journal->written += (uint64_t)bytes;
  s->last = frame.meta.sequence;
  journal->last_crc = frame.crc;
  return KW_OK;
}

static void shrink_buffer(kw_journal *journal) {
  if (journal->buffer_cap <= KEPT_BUFFER) return;
  kw_free(journal->buffer);
  journal->buffer = NULL;
  journal->buffer_cap = 0;
}

int kw_journal_append(kw_journal *journal, const kw_commit_group *group) {
  size_t bytes = kw_journal_frame_bytes(group);
  if (journal->is_failed) return KW_ERR_STORAGE;
  int rc = choose_current(journal, (int64_t)bytes);
  if (rc != KW_OK) return rc;
  if (!kw_reserve(&journal->buffer, &journal->buffer_cap, bytes + KW_JOURNAL_BLOCK, 1))
    return KW_ERR_NO_MEMORY;
  rc = write_frame(journal, group, (int64_t)bytes);
  shrink_buffer(journal);
  return rc;
}

int64_t kw_journal_write_ns(const kw_journal *journal) {
  return journal->write_ns;
}

uint64_t kw_journal_written(const kw_journal *journal) {
  return journal->written;
}

/* }====== */
