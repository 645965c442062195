/* SPDX-License-Identifier: MIT */
#include "disk/journal.h"

#include "base/clock.h"
#include "base/directory.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/thread.h"
#include "disk/journal_segment.h"
#include "model/error.h"

#define MUCH (INT64_C(32) << 20) /* bytes of frames that are not released */
#define LEAST_BYTES (KW_JOURNAL_FRAMES + 2 * KW_JOURNAL_BLOCK) /* of a segment */
#define KEPT_BUFFER (2 << 20) /* bytes that the buffer of frames keeps */

/* Frames that are not released take at most as many bytes as so many of the largest segments have. */
#define MOST_SEGMENTS 4

/* Segments that are not removed: one is filled while the other one is released. */
#define KEPT_FILES 2

/* Calls of kw_journal_prepare in a row that have to find a segment too much, before it is removed. */
#define CALM_CALLS 4

/* The life of a slot. One thread owns a slot while it is busy, and does I/O without the mutex. */
typedef enum slot_state {
  SLOT_EMPTY,  /* without a file */
  SLOT_FREE,   /* the file has no frame that is needed */
  SLOT_BUSY,   /* the file is being made, renewed or removed */
  SLOT_READY,  /* renewed: it can take frames */
  SLOT_IN_USE, /* it has frames that are not released, or is the current one */
} slot_state;

typedef struct slot {
  slot_state state;
  kw_journal_segment segment;
  int64_t next; /* offset of the next frame */
  int64_t last; /* sequence of the last frame */
} slot;

/* A frame that is not released. */
typedef struct entry {
  int64_t sequence;
  int64_t bytes;
} entry;

struct kw_journal {
  pid_t pid;
  uint64_t store_id;
  uint64_t epoch;
  int64_t first_bytes;
  int64_t most_bytes;
  bool (*is_in_place)(void *ctx);
  void *ctx;

  /* Of append alone. */
  uint8_t *buffer; /* has the frame, which begins at a multiple of a block in memory, too */
  size_t buffer_cap;
  uint32_t last_crc; /* of the header of the last frame */
  int64_t write_ns;  /* that the write of the last frame took */

  pthread_mutex_t mutex;  /* guards what follows */
  pthread_cond_t changed; /* a slot is no longer busy */
  slot slots[KW_JOURNAL_SLOTS];
  slot *current;    /* takes the next frame; NULL: none does */
  bool is_writing;  /* a frame, to `current` */
  bool is_failed;   /* a write has failed */
  int64_t number;   /* of the last use of a segment */
  int64_t used;     /* number of the last segment that was the current one */
  int64_t appended; /* sequence of the last frame */
  int64_t released; /* sequence */
  entry *entries;   /* in order; the first `done` ones are released */
  size_t n_entries;
  size_t cap_entries;
  size_t done;
  int64_t unreleased; /* bytes */
  int64_t peak;       /* of `unreleased`, since the last kw_journal_prepare */
  int calm;           /* calls of kw_journal_prepare in a row that found few bytes in use */

  char directory[];
};

static void lock(const kw_journal *journal) {
  pthread_mutex_lock((pthread_mutex_t *)&journal->mutex);
}

static void unlock(const kw_journal *journal) {
  pthread_mutex_unlock((pthread_mutex_t *)&journal->mutex);
}

/* {====== Opening ====== */

/* Returns a size for segments: whole blocks, within bounds. */
static int64_t size_within(int64_t bytes, int64_t otherwise, int64_t least) {
  if (bytes <= 0) bytes = otherwise;
  if (bytes < least) bytes = least;
  if (bytes > KW_JOURNAL_MAX_BYTES) bytes = KW_JOURNAL_MAX_BYTES;
  return (bytes + KW_JOURNAL_BLOCK - 1) / KW_JOURNAL_BLOCK * KW_JOURNAL_BLOCK;
}

/* Takes over a file of earlier times. One that cannot be used is removed: LMDB has its groups. */
static int adopt(kw_journal *journal, int i) {
  char why[KW_JOURNAL_WHY_ROOM];
  slot *s = &journal->slots[i];
  int rc = kw_journal_segment_open(journal->directory, i, false, &s->segment, why);
  if (rc == KW_ERR_CORRUPT) kw_journal_segment_remove(journal->directory, i);
  if (rc == KW_ERR_CORRUPT || rc == KW_ERR_NOT_FOUND) return KW_OK;
  if (rc != KW_OK) return rc;
  s->state = SLOT_FREE;
  if (s->segment.number > journal->number) journal->number = s->segment.number;
  return KW_OK;
}

int kw_journal_open(const char *directory, const kw_journal_options *options, kw_journal **result) {
  size_t len = strlen(directory);
  kw_journal *journal = kw_alloc_zeroed(sizeof *journal + len + 1);
  if (journal == NULL) return KW_ERR_NO_MEMORY;
  memcpy(journal->directory, directory, len + 1);
  journal->pid = kw_process_id();
  journal->store_id = options->store_id;
  journal->epoch = options->epoch;
  journal->first_bytes = size_within(options->first_bytes, KW_JOURNAL_FIRST_BYTES, LEAST_BYTES);
  journal->most_bytes =
      size_within(options->most_bytes, KW_JOURNAL_MOST_BYTES, journal->first_bytes);
  journal->is_in_place = options->is_in_place;
  journal->ctx = options->ctx;
  pthread_mutex_init(&journal->mutex, NULL);
  pthread_cond_init(&journal->changed, NULL);
  kw_journal_segment_remove_unfinished(directory);
  int rc = KW_OK;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) journal->slots[i].segment.fd = -1;
  for (int i = 0; rc == KW_OK && i < KW_JOURNAL_SLOTS; i++) rc = adopt(journal, i);
  *result = rc == KW_OK ? journal : NULL;
  if (rc != KW_OK) kw_journal_close(journal);
  return rc;
}

int64_t kw_journal_bytes_in(const char *directory) {
  int64_t sum = 0;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) sum += kw_journal_segment_bytes_of(directory, i);
  return sum;
}

void kw_journal_remove(const char *directory) {
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) kw_journal_segment_remove(directory, i);
}

/* After a fork the child's copy of the mutex may stay locked for ever, and the thread that appends may have been about
 * to move the entries and the buffer. */
void kw_journal_close(kw_journal *journal) {
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) kw_journal_segment_close(&journal->slots[i].segment);
  if (journal->pid == kw_process_id()) {
    pthread_cond_destroy(&journal->changed);
    pthread_mutex_destroy(&journal->mutex);
    kw_free(journal->entries);
    kw_free(journal->buffer);
  }
  kw_free(journal);
}

/* }====== */

/* {====== Segments ======
 *
 * The mutex is locked when these functions are called, and when they return.
 */

static int64_t room_of(const slot *s) {
  int64_t from = s->state == SLOT_IN_USE ? s->next : KW_JOURNAL_FRAMES;
  return s->segment.size - from;
}

static bool has_file(const slot *s) {
  return s->state != SLOT_EMPTY && s->segment.fd >= 0;
}

static bool is_any_busy(const kw_journal *journal) {
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) {
    if (journal->slots[i].state == SLOT_BUSY) return true;
  }
  return false;
}

/* Returns the largest slot in a state that has room for `need` bytes, or the smallest one; or NULL. */
static slot *find(kw_journal *journal, slot_state state, int64_t need, bool is_largest) {
  slot *best = NULL;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) {
    slot *s = &journal->slots[i];
    if (s->state != state || (state != SLOT_EMPTY && room_of(s) < need)) continue;
    if (best == NULL || (s->segment.size > best->segment.size) == is_largest) best = s;
  }
  return best;
}

static int64_t bytes_of_files(const kw_journal *journal) {
  int64_t sum = 0;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) {
    if (has_file(&journal->slots[i])) sum += journal->slots[i].segment.size;
  }
  return sum;
}

/* Returns the size of the smallest segment that has room for a frame of `need` bytes. */
static int64_t least_size(const kw_journal *journal, int64_t need) {
  int64_t size = need + KW_JOURNAL_FRAMES;
  return size > journal->first_bytes ? size : journal->first_bytes;
}

/* Returns the size of the next new segment: twice the largest one, and enough for a frame of `need` bytes. */
static int64_t next_size(const kw_journal *journal, int64_t need) {
  int64_t size = journal->first_bytes;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) {
    const slot *s = &journal->slots[i];
    if (has_file(s) && 2 * s->segment.size > size) size = 2 * s->segment.size;
  }
  while (size < need + KW_JOURNAL_FRAMES) size *= 2;
  return size > journal->most_bytes ? journal->most_bytes : size;
}

static void end_busy(kw_journal *journal, slot *s, slot_state state) {
  s->state = state;
  pthread_cond_broadcast(&journal->changed);
}

static bool is_in_place(const kw_journal *journal) {
  return journal->is_in_place == NULL || journal->is_in_place(journal->ctx);
}

/* Makes the file of a segment. A file that cannot be made is no failure of the journal, for want of descriptors for
 * example: the file is missing, and nothing else. */
static int make_file(const kw_journal *journal, kw_journal_segment *segment) {
  if (!is_in_place(journal)) return KW_ERR_NO_SPACE;
  int rc = kw_journal_segment_make(journal->directory, segment);
  return rc == KW_ERR_STORAGE ? KW_ERR_NO_SPACE : rc;
}

/* Makes the file of an empty slot. Where there is no room for a large one, a small one has to do. */
static int make(kw_journal *journal, slot *s, int64_t need) {
  int64_t least = least_size(journal, need);
  kw_journal_segment made = {.slot = (int)(s - journal->slots),
                             .size = next_size(journal, need),
                             .store_id = journal->store_id,
                             .number = ++journal->number,
                             .epoch = journal->epoch};
  s->state = SLOT_BUSY;
  unlock(journal);
  int rc = make_file(journal, &made);
  if (rc == KW_ERR_NO_SPACE && made.size > least) {
    made.size = least;
    rc = make_file(journal, &made);
  }
  lock(journal);
  if (rc == KW_OK) s->segment = made;
  end_busy(journal, s, rc == KW_OK ? SLOT_READY : SLOT_EMPTY);
  return rc;
}

/* Renews the header of a segment whose frames are not needed. */
static int renew(kw_journal *journal, slot *s) {
  kw_journal_segment renewed = s->segment;
  int64_t number = ++journal->number;
  slot_state before = s->state;
  s->state = SLOT_BUSY;
  unlock(journal);
  int rc = kw_journal_segment_renew(&renewed, journal->store_id, number, journal->epoch);
  lock(journal);
  s->segment = renewed;
  end_busy(journal, s, rc == KW_OK ? SLOT_READY : before == SLOT_READY ? SLOT_FREE : before);
  return rc;
}

/* Removes the file of a slot that has no frame which is needed. */
static void remove_file(kw_journal *journal, slot *s) {
  kw_journal_segment gone = s->segment;
  s->state = SLOT_BUSY;
  s->segment.fd = -1;
  unlock(journal);
  if (is_in_place(journal)) kw_journal_segment_remove(journal->directory, gone.slot);
  kw_journal_segment_close(&gone);
  lock(journal);
  end_busy(journal, s, SLOT_EMPTY);
}

/* Returns an empty slot. If there is none, the smallest file without a frame makes way. Returns NULL if all files have
 * frames. */
static slot *find_empty(kw_journal *journal) {
  slot *s = find(journal, SLOT_EMPTY, 0, true);
  if (s != NULL) return s;
  s = find(journal, SLOT_FREE, 0, false);
  if (s == NULL) s = find(journal, SLOT_READY, 0, false);
  if (s != NULL) remove_file(journal, s);
  return s;
}

/* Makes a segment ready that has room for `need` bytes. */
static int make_ready(kw_journal *journal, int64_t need, bool is_largest) {
  slot *s = find(journal, SLOT_FREE, need, is_largest);
  if (s != NULL) return renew(journal, s);
  s = find_empty(journal);
  return s != NULL ? make(journal, s, need) : KW_ERR_NO_SPACE;
}

/* }====== */

/* {====== Releasing ====== */

/* Frees the slots whose frames are all released. */
static void free_slots(kw_journal *journal) {
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) {
    slot *s = &journal->slots[i];
    if (s->state == SLOT_IN_USE && s != journal->current && s->last <= journal->released)
      s->state = SLOT_FREE;
  }
}

void kw_journal_release(kw_journal *journal, int64_t sequence) {
  lock(journal);
  if (sequence > journal->released) journal->released = sequence;
  while (journal->done < journal->n_entries &&
         journal->entries[journal->done].sequence <= journal->released)
    journal->unreleased -= journal->entries[journal->done++].bytes;
  if (journal->done == journal->n_entries) journal->done = journal->n_entries = 0;
  free_slots(journal);
  unlock(journal);
}

/* Makes room for one more entry. The released ones make room once they are half of all, so that an entry moves once. */
static bool reserve_entry(kw_journal *journal) {
  size_t left = journal->n_entries - journal->done;
  if (journal->n_entries == journal->cap_entries && journal->done > left) {
    memmove(journal->entries, journal->entries + journal->done, left * sizeof *journal->entries);
    journal->n_entries = left;
    journal->done = 0;
  }
  return kw_reserve(&journal->entries, &journal->cap_entries, journal->n_entries + 1,
                    sizeof *journal->entries);
}

/* }====== */

/* {====== Appending ====== */

size_t kw_journal_max_frame(const kw_journal *journal) {
  return (size_t)(journal->most_bytes - KW_JOURNAL_FRAMES);
}

static void set_current(kw_journal *journal, slot *s) {
  journal->current = s;
  journal->used = s->segment.number;
  s->state = SLOT_IN_USE;
  s->next = KW_JOURNAL_FRAMES;
  s->last = 0;
  free_slots(journal); /* the one before may have no frame that is needed */
}

/* Chooses the segment for a frame of `need` bytes. Numbers of segments rise in the order in which they take frames: a
 * ready segment with a lower number than the last one is renewed first. The mutex is locked. */
static int choose_current(kw_journal *journal, int64_t need) {
  while (journal->current == NULL || room_of(journal->current) < need) {
    slot *s = find(journal, SLOT_READY, need, true);
    int rc = KW_OK;
    if (s != NULL && s->segment.number > journal->used) {
      set_current(journal, s);
    } else if (s != NULL) {
      rc = renew(journal, s);
    } else if ((s = find(journal, SLOT_FREE, need, true)) != NULL) {
      rc = renew(journal, s);
    } else if (is_any_busy(journal)) {
      pthread_cond_wait(&journal->changed, &journal->mutex);
    } else {
      rc = make_ready(journal, need, true);
    }
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

/* Chooses the segment, and makes room for what is noted afterwards. The mutex is locked. */
static int begin(kw_journal *journal, int64_t bytes) {
  if (journal->is_failed) return KW_ERR_STORAGE;
  if (bytes > (int64_t)kw_journal_max_frame(journal) ||
      journal->unreleased + bytes > MOST_SEGMENTS * journal->most_bytes)
    return KW_ERR_NO_SPACE;
  if (!reserve_entry(journal)) return KW_ERR_NO_MEMORY;
  int rc = choose_current(journal, bytes);
  if (rc == KW_ERR_STORAGE) journal->is_failed = true;
  if (rc == KW_OK) journal->is_writing = true;
  return rc;
}

/* Notes a frame that is durable. The mutex is locked. */
static void note(kw_journal *journal, const kw_journal_frame *frame, int64_t bytes) {
  slot *s = journal->current;
  s->next += bytes;
  s->last = journal->appended = frame->meta.sequence;
  journal->last_crc = frame->crc;
  journal->entries[journal->n_entries++] = (entry){frame->meta.sequence, bytes};
  journal->unreleased += bytes;
  if (journal->unreleased > journal->peak) journal->peak = journal->unreleased;
}

/* Returns where the frame is in the buffer. */
static uint8_t *frame_of(const kw_journal *journal) {
  uintptr_t start = (uintptr_t)journal->buffer;
  return journal->buffer + (KW_JOURNAL_BLOCK - start % KW_JOURNAL_BLOCK) % KW_JOURNAL_BLOCK;
}

/* True if a write has found no room, and the frame has no header in the file: it is no frame. A file system that copies
 * what is written again may lack room for it. Blocks behind the header may be written: the next frame is written over
 * them, and recovery finds no header among them. The buffer loses its first block. */
static bool is_refused(const kw_journal *journal, int number) {
  uint8_t header[KW_JOURNAL_FRAME_HEADER], *block = frame_of(journal);
  const slot *s = journal->current;
  if (!kw_is_no_room(number)) return false;
  memcpy(header, block, sizeof header);
  return kw_journal_segment_read(&s->segment, block, s->next) &&
         memcmp(block, header, sizeof header) != 0;
}

/* A failed write may be durable, or a part of it: nothing is written after it. */
static int write_frame(kw_journal *journal, const kw_commit_group *group, int64_t bytes) {
  const slot *s = journal->current;
  kw_journal_frame frame = {
      .salt = s->segment.salt, .epoch = journal->epoch, .before = journal->last_crc};
  kw_journal_frame_encode(frame_of(journal), group, &frame);
  int64_t start = kw_clock_ns();
  int number = kw_journal_segment_write(&s->segment, frame_of(journal), (size_t)bytes, s->next);
  journal->write_ns = kw_clock_ns() - start;
  bool has_no_room = is_refused(journal, number);
  lock(journal);
  journal->is_writing = false;
  if (number == 0) note(journal, &frame, bytes);
  if (number != 0 && !has_no_room) journal->is_failed = true;
  unlock(journal);
  if (has_no_room) return KW_ERR_NO_SPACE;
  return number == 0 ? KW_OK : kw_error_storage(number);
}

static void shrink_buffer(kw_journal *journal) {
  if (journal->buffer_cap <= KEPT_BUFFER) return;
  kw_free(journal->buffer);
  journal->buffer = NULL;
  journal->buffer_cap = 0;
}

int kw_journal_append(kw_journal *journal, const kw_commit_group *group) {
  size_t bytes = kw_journal_frame_bytes(group);
  assert(group->meta.sequence > journal->appended);
  if (bytes > kw_journal_max_frame(journal)) return KW_ERR_NO_SPACE;
  if (!kw_reserve(&journal->buffer, &journal->buffer_cap, bytes + KW_JOURNAL_BLOCK, 1))
    return KW_ERR_NO_MEMORY;
  lock(journal);
  int rc = begin(journal, (int64_t)bytes);
  unlock(journal);
  if (rc == KW_OK) rc = write_frame(journal, group, (int64_t)bytes);
  shrink_buffer(journal);
  return rc;
}

int64_t kw_journal_write_ns(const kw_journal *journal) {
  return journal->write_ns;
}

/* }====== */

/* {====== Preparing ====== */

static int count_files(const kw_journal *journal) {
  int n = 0;
  for (int i = 0; i < KW_JOURNAL_SLOTS; i++) n += has_file(&journal->slots[i]);
  return n;
}

/* True if there is a file too much: for some calls the journal has needed less than a quarter of the bytes. The mutex
 * is locked, also in the next functions. */
static bool is_calm(kw_journal *journal) {
  bool is_little = journal->peak < bytes_of_files(journal) / 4;
  journal->peak = journal->unreleased;
  journal->calm = is_little ? journal->calm + 1 : 0;
  return journal->calm >= CALM_CALLS && count_files(journal) > KEPT_FILES;
}

/* Has the next segment be a small one. */
static void give_up_ready(kw_journal *journal) {
  slot *ready = find(journal, SLOT_READY, 0, true);
  const slot *smallest = find(journal, SLOT_FREE, 0, false);
  if (ready != NULL && smallest != NULL && smallest->segment.size < ready->segment.size)
    ready->state = SLOT_FREE;
}

/* Has the next frame go to the segment that is ready, if that is a smaller one. */
static void give_up_current(kw_journal *journal) {
  const slot *current = journal->current, *ready = find(journal, SLOT_READY, 0, false);
  if (current == NULL || journal->is_writing || ready == NULL) return;
  if (ready->segment.size >= current->segment.size) return;
  journal->current = NULL;
  free_slots(journal);
}

/* Removes the largest segment that has no frame. */
static void remove_largest(kw_journal *journal) {
  slot *s = find(journal, SLOT_FREE, 0, true);
  if (s != NULL) remove_file(journal, s);
}

/* True if the current segment will soon be full. */
static bool is_needed(const kw_journal *journal) {
  const slot *current = journal->current;
  return current == NULL || room_of(current) < current->segment.size / 2;
}

int kw_journal_prepare(kw_journal *journal) {
  int rc = KW_OK;
  lock(journal);
  bool calm = is_calm(journal);
  if (calm) give_up_ready(journal);
  bool has_ready = find(journal, SLOT_READY, 0, true) != NULL || is_any_busy(journal);
  bool has_free = find(journal, SLOT_FREE, 0, true) != NULL;
  if (!has_ready && (has_free || is_needed(journal))) rc = make_ready(journal, 0, !calm);
  if (calm) {
    give_up_current(journal);
    remove_largest(journal);
  }
  unlock(journal);
  return rc;
}

/* }====== */

int64_t kw_journal_unreleased(const kw_journal *journal) {
  lock(journal);
  int64_t bytes = journal->unreleased;
  unlock(journal);
  return bytes;
}

bool kw_journal_is_filling(const kw_journal *journal) {
  int64_t unreleased = kw_journal_unreleased(journal);
  return unreleased >= MUCH || unreleased >= MOST_SEGMENTS * journal->most_bytes / 2;
}

int64_t kw_journal_size(const kw_journal *journal) {
  lock(journal);
  int64_t bytes = bytes_of_files(journal);
  unlock(journal);
  return bytes;
}
