/* SPDX-License-Identifier: MIT
 *
 * journal: recovers a journal that is made from the input, appends what was recovered to it in a new epoch, and
 * recovers that.
 *
 *   how     one byte: 0 if the rest is the file journal-0 as it is; else the rest is a list of frames. Headers, salts
 *           and checksums, which a fuzzer cannot guess, are then correct. how - 1 is the sequence that is applied
 *   frame   one byte of flags, see below; the sequence, and the number of changes, a byte each; the length of the
 *           payload, two bytes; the payload
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "bytes.h"
#include "disk/journal_segment.h"
#include "model/error.h"
#include "reach.h"

#define STORE_ID 1
#define EPOCH 10
#define GIVEN 5  /* bytes of the input before a payload */
#define AGAIN 16 /* one in so many journals is written again */

/* What the flags of a frame do. */
enum {
  NEW_SEGMENT = 1,   /* the frame begins a segment */
  WRONG_BIT = 2,     /* of the header */
  WRONG_BYTE = 4,    /* of the payload, several bits */
  NO_FRAME = 8,      /* the block is left out */
  WRONG_CHAIN = 16,  /* the frame does not follow the one before */
  OTHER_EPOCH = 32,  /* of an earlier use of the segment */
  WRONG_HEADER = 64, /* of the segment that begins */
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REFUSED, EMPTY, RECOVERED, ROWS, WRITTEN };
static reach reached[] = {{"refused", 0}, {"empty", 0},         {"recovered", 0},
                          {"rows", 0},    {"written again", 0}, {0}};
static char directory[64];

static void remove_directory(void) {
  kw_journal_remove(directory);
  kw_journal_segment_remove_unfinished(directory);
  rmdir(directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  reach_report(reached);
  snprintf(directory, sizeof directory, "/dev/shm/keywatch-fuzz-journal-%ld", (long)getpid());
  must(mkdir(directory, 0700) == 0, "a directory is made");
  atexit(remove_directory);
  return 0;
}

/* {====== Files ====== */

static void write_segment(int slot, kw_slice file) {
  char name[KW_JOURNAL_NAME_ROOM], path[KW_NAME_ROOM];
  kw_directory_name(directory, kw_journal_segment_name(slot, name), path);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(fd >= 0 && write(fd, file.data, file.len) == (ssize_t)file.len, "a file is written");
  close(fd);
}

/* The segment that is being made. */
typedef struct making {
  int n; /* segments so far */
  kw_journal_segment segment;
  bool has_wrong_header;
  uint32_t last_crc;
  bytes file;
} making;

static void end_segment(making *m) {
  if (m->n == 0) return;
  bytes_grow(&m->file, KW_JOURNAL_BLOCK);
  memset(m->file.data + m->file.len - KW_JOURNAL_BLOCK, 0, KW_JOURNAL_BLOCK);
  m->segment.size = (int64_t)m->file.len;
  kw_journal_segment_put_header(m->file.data, &m->segment);
  if (m->has_wrong_header) m->file.data[m->n] ^= 1;
  write_segment(m->n - 1, bytes_slice(&m->file));
  bytes_drop(&m->file);
}

static void begin_segment(making *m, uint8_t flags) {
  end_segment(m);
  m->n++;
  m->segment = (kw_journal_segment){.store_id = STORE_ID, .salt = (uint64_t)m->n << 32};
  m->has_wrong_header = (flags & WRONG_HEADER) != 0;
  m->file = (bytes){0};
  memset(bytes_grow(&m->file, KW_JOURNAL_FRAMES), 0, KW_JOURNAL_FRAMES);
}

static void add_frame(making *m, const uint8_t *given, kw_slice payload) {
  uint8_t flags = given[0];
  kw_journal_frame frame = {.salt = m->segment.salt,
                            .epoch = EPOCH - (flags & OTHER_EPOCH ? 1 : 0),
                            .before = m->last_crc ^ (flags & WRONG_CHAIN ? 1 : 0),
                            .meta = {.sequence = given[1], .revision = given[1]},
                            .payload_bytes = (uint32_t)payload.len,
                            .changes = given[2]};
  uint8_t *to = bytes_grow(&m->file, kw_journal_frame_size(payload.len));
  memcpy(to + KW_JOURNAL_FRAME_HEADER, payload.data, payload.len);
  kw_journal_frame_seal(to, &frame);
  m->last_crc = frame.crc;
  if (flags & WRONG_BIT) to[given[1] % KW_JOURNAL_FRAME_HEADER] ^= (uint8_t)(1 << given[1] % 8);
  if (flags & WRONG_BYTE) to[KW_JOURNAL_FRAME_HEADER + payload.len / 2] ^= 0x55;
  if (flags & NO_FRAME) memset(to, 0, KW_JOURNAL_BLOCK);
}

static void write_frames(kw_slice rest) {
  making m = {0};
  while (rest.len >= GIVEN) {
    const uint8_t *given = rest.data;
    size_t len = kw_min_size((size_t)given[3] << 8 | given[4], rest.len - GIVEN);
    bool is_first = m.n == 0 || ((given[0] & NEW_SEGMENT) && m.n < KW_JOURNAL_SEGMENTS);
    if (is_first) begin_segment(&m, given[0]);
    add_frame(&m, given, kw_slice_of(given + GIVEN, len));
    rest = kw_slice_of(rest.data + GIVEN + len, rest.len - GIVEN - len);
  }
  end_segment(&m);
}

/* }====== */

/* {====== Recovered groups ====== */

static bool is_same_blob(const kw_blob *a, const kw_blob *b) {
  if (a == NULL || b == NULL) return a == b;
  return kw_slice_equal(kw_blob_slice(a), kw_blob_slice(b));
}

static bool is_same(const kw_commit_change *a, const kw_commit_change *b) {
  if (a->kind != b->kind) return false;
  switch (a->kind) {
    case KW_COMMIT_PUT:
    case KW_COMMIT_REMOVE:
      return a->main == b->main && a->sub == b->sub && a->tombstone == b->tombstone &&
             is_same_blob(a->record, b->record);
    case KW_COMMIT_PUT_LEASE: return a->lease == b->lease && a->ttl == b->ttl;
    case KW_COMMIT_REMOVE_LEASE: return a->lease == b->lease;
    case KW_COMMIT_PUT_ROW:
    case KW_COMMIT_REMOVE_ROW:
      return is_same_blob(a->name, b->name) && is_same_blob(a->row, b->row);
    case KW_COMMIT_SPAN: break; /* not of a recovered group */
  }
  return false;
}

/* Appends a group to the journal in a new epoch, and recovers it. */
static void write_again(const kw_commit_group *group) {
  kw_journal_options options = {.store_id = STORE_ID, .epoch = EPOCH + 1, .segment_bytes = 1 << 20};
  kw_journal *journal;
  kw_journal_recovered again;
  char why[KW_JOURNAL_WHY_ROOM];
  kw_journal_remove(directory); /* its segments may be too small */
  must(kw_journal_open(directory, &options, &journal) == KW_OK, "a recovered journal is opened");
  must(kw_journal_append(journal, group) == KW_OK, "a recovered group is appended");
  kw_journal_close(journal);
  kw_journal_expected expected = {
      .store_id = STORE_ID, .epoch = EPOCH + 1, .applied = group->meta.sequence - 1};
  int rc = kw_journal_recover(directory, &expected, &again, why);
  must(rc == KW_OK && again.groups == 1, "what was appended is recovered");
  must(again.group.n == group->n && again.group.meta.revision == group->meta.revision,
       "nothing is lost");
  for (size_t i = 0; i < group->n; i++)
    must(is_same(&again.group.items[i], &group->items[i]), "nothing is changed");
  kw_journal_recovered_drop(&again);
  reached[WRITTEN].n++;
}

static void check(const kw_journal_recovered *result, int64_t applied) {
  kw_revision newest = {0};
  size_t rows = 0, records = 0;
  for (size_t i = 0; i < result->group.n; i++) {
    const kw_commit_change *c = &result->group.items[i];
    kw_revision rev = {c->main, c->sub};
    rows += c->kind == KW_COMMIT_PUT_ROW || c->kind == KW_COMMIT_REMOVE_ROW;
    if (c->kind != KW_COMMIT_PUT) continue;
    must(kw_revision_compare(rev, newest) > 0, "revisions rise");
    newest = rev;
    free(bytes_exact(kw_blob_slice(c->record))); /* reads every byte */
    records++;
  }
  must(rows == result->group.n_rows && records == result->n_records, "all changes are counted");
  must(result->groups > 0 || result->group.n == 0, "no group, no change");
  must(result->groups == 0 || result->group.meta.sequence == applied + result->groups,
       "no group is missing");
  reached[ROWS].n += rows;
}

/* }====== */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kw_journal_recovered result;
  char why[KW_JOURNAL_WHY_ROOM];
  if (size < 1) return 0;
  kw_slice rest = kw_slice_of(data + 1, size - 1);
  kw_journal_expected expected = {
      .store_id = STORE_ID, .epoch = EPOCH, .applied = data[0] == 0 ? 0 : data[0] - 1};
  if (data[0] == 0) {
    write_segment(0, rest);
  } else {
    write_frames(rest);
  }
  if (kw_journal_recover(directory, &expected, &result, why) == KW_OK) {
    check(&result, expected.applied);
    reached[result.groups == 0 ? EMPTY : RECOVERED].n++;
    if (result.groups > 0 && reached[RECOVERED].n % AGAIN == 1) write_again(&result.group);
    kw_journal_recovered_drop(&result);
  } else {
    must(result.group.items == NULL && result.records == NULL && why[0] != 0,
         "a refusal has a reason");
    reached[REFUSED].n++;
  }
  kw_journal_remove(directory);
  return 0;
}
