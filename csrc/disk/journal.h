/* SPDX-License-Identifier: MIT
 *
 * journal: commit groups that are durable before LMDB has them. This is the public face; journal_frame.h has the bytes
 * of a frame, journal_segment.h the file of a segment, journal_recovery.c the reader.
 *
 * A group is appended as one frame, by one write with its flush. A checkpoint brings the groups to LMDB later, and then
 * releases them. The journal knows nothing of LMDB: its caller says which groups are applied there.
 *
 *   a segment, the file journal-SLOT:
 *
 *   0          4 KiB      8 KiB
 *   | header   | header   | frame  | frame            | frame  | unused                                 |
 *   | copy 0   | copy 1   | 4 KiB  | 12 KiB           | 4 KiB  | zeros, or bytes of an earlier use      | size
 *
 *   - A segment is used again when all its frames are released. Each use has a number, which rises, and a random salt.
 *     The number orders the segments; the slot says nothing.
 *   - A header is rewritten copy by copy, each with its own flush, and the copy that may be bad first. So one copy is
 *     good at every moment. If only the header of the earlier use can be read after a torn write, the later use
 *     has no frame yet, and the frames of the earlier use are released. Two bad copies are damage.
 *   - A frame begins with a header of its own, and is padded to blocks of 4 KiB. A frame header has the salt of its
 *     segment: neither a frame of an earlier use nor the value of a user can be mistaken for a frame.
 *   - A durable block is not written again before its frame is released.
 *   - A frame is written only after the frame before it is durable. So if a frame header can be read, all frames before
 *     it were durable once.
 *
 * A sequence numbers the groups, without gaps. Groups may become durable without the journal, by LMDB alone; then LMDB
 * has all groups before them, too. An epoch is the time between kw_journal_open and the next one; LMDB stores the epoch
 * before the first append in it. All frames of one use of a segment are of one epoch.
 *
 * Recovery reads all frames of the epoch in order. What it finds at a place where a frame should be:
 *
 *   a frame with one wrong bit         the bit is corrected, in memory
 *   no frame, or a damaged one, and    the end of the journal: a torn write, which was never acknowledged. Damage of
 *     no frame header behind it        more than one bit in the very last frame cannot be told from a torn write
 *   the same, with a later frame       nothing, if all groups up to the later frame are applied; else damage, refused
 *   a frame beyond applied + 1, where  a gap, refused
 *     the frame before is missing
 *   a frame of a later epoch           LMDB is older than its journal, refused
 *   a frame of an earlier epoch        nothing: LMDB has its group
 *
 * Numbers in the files are big-endian. The reader trusts no length of a file.
 */
#ifndef KW_DISK_JOURNAL_H
#define KW_DISK_JOURNAL_H

#include "disk/commit_group.h"

#define KW_JOURNAL_WHY_ROOM 256 /* bytes of a sentence that says why a journal is refused */

/* Bytes of segments. A segment above the last number is neither made nor read. */
#define KW_JOURNAL_FIRST_BYTES (INT64_C(1) << 20)
#define KW_JOURNAL_MOST_BYTES (INT64_C(64) << 20)
#define KW_JOURNAL_MAX_BYTES (INT64_C(1) << 30)

/* {====== Recovery ====== */

/* What a journal has beyond the applied groups. All zero: nothing. */
typedef struct kw_journal_recovered {
  bool is_empty;         /* there is no group beyond the applied ones */
  kw_commit_group group; /* all changes of these groups, in order; meta is that of the last group */
  int64_t groups;        /* number of these groups */
  int64_t repaired_bits; /* bits that were corrected */
  int64_t last_segment_number; /* of the newest segment; 0: there is none */
  bool has_epoch;              /* a segment is of the epoch: the journal was not removed since */
  kw_blob **records;           /* those that the changes borrow; owned */
  size_t n_records;
  size_t cap_records;
} kw_journal_recovered;

/* Reads the journal of a directory: all groups of the epoch beyond the sequence `applied`. Removes the unfinished
 * segment that a crash has left, and changes nothing else. A directory without a journal is an empty journal. Returns
 * KW_OK; KW_ERR_NO_MEMORY; KW_ERR_STORAGE if a file cannot be read, or KW_ERR_NO_SPACE if the system gives that as the
 * reason; or KW_ERR_CORRUPT if the journal is damaged, or is not the one of this store and epoch. After an error
 * *result is all zero, and `why` says why, without the path. */
int kw_journal_recover(const char *directory, uint64_t store_id, int64_t applied, uint64_t epoch,
                       kw_journal_recovered *result, char why[KW_JOURNAL_WHY_ROOM]);

/* Frees everything. *result is then all zero. */
void kw_journal_recovered_drop(kw_journal_recovered *result);

/* }====== */

/* {====== Writing ====== */

typedef struct kw_journal kw_journal;

typedef struct kw_journal_options {
  uint64_t store_id;   /* segments of another store are refused by recovery */
  uint64_t epoch;      /* above that of every frame of the directory */
  int64_t first_bytes; /* size of the first segment; 0: KW_JOURNAL_FIRST_BYTES */
  int64_t most_bytes;  /* size of the largest segments; 0: KW_JOURNAL_MOST_BYTES */
  /* False if the path may mean another directory now. Any thread. NULL: it never does. */
  bool (*is_in_place)(void *ctx);
  void *ctx;
} kw_journal_options;

/* Opens the journal of a directory for a new epoch. Comes after recovery, when LMDB has all groups: the segments of the
 * directory are used again, whatever they hold. LMDB has the new epoch, durably, before the first append. Makes no
 * segment: kw_journal_prepare does, or the first append. Returns KW_OK, KW_ERR_NO_MEMORY, KW_ERR_NO_SPACE or
 * KW_ERR_STORAGE. */
int kw_journal_open(const char *directory, const kw_journal_options *options, kw_journal **journal);

/* Returns the bytes of the files of a directory's journal. */
int64_t kw_journal_bytes_in(const char *directory);

/* Removes the journal of a directory: the caller has all its groups elsewhere, durably. */
void kw_journal_remove(const char *directory);

/* Closes the files, and frees the journal. No other call may be running. A child of a fork may call this function, and
 * no other one. */
void kw_journal_close(kw_journal *journal);

/* Makes a group durable. meta.sequence is above that of the last group. Called by one thread at a time, the commit
 * thread. Returns KW_OK. Or, and nothing has happened: KW_ERR_NO_MEMORY; KW_ERR_NO_SPACE if a new segment cannot
 * be made, if there is no room for the frame, if too many frames are not released, or if the frame is larger than
 * kw_journal_max_frame. Or KW_ERR_STORAGE, and it is unknown whether the group is durable; then every later append
 * returns KW_ERR_STORAGE. */
int kw_journal_append(kw_journal *journal, const kw_commit_group *group);

/* Returns the nanoseconds that the write of the last frame took, with its flush. Called by the thread that appends. */
int64_t kw_journal_write_ns(const kw_journal *journal);

/* Says that the groups up to this sequence are durable in LMDB. Any thread. Does no I/O. */
void kw_journal_release(kw_journal *journal, int64_t sequence);

/* Makes the next segment ahead of need, and removes segments that are no longer needed: the next append is then one
 * write. Called after each checkpoint, by one thread at a time; append may run meanwhile. Returns KW_OK; or
 * KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE, and the journal goes on as before. */
int kw_journal_prepare(kw_journal *journal);

/* Returns the bytes of the frames that are not released. Any thread. */
int64_t kw_journal_unreleased(const kw_journal *journal);

/* True if it is time for a checkpoint: the frames that are not released take half of what they may take, or much. Any
 * thread. */
bool kw_journal_is_filling(const kw_journal *journal);

/* Returns the bytes of all files. Any thread. */
int64_t kw_journal_size(const kw_journal *journal);

/* Returns the bytes of the frame of a group. */
size_t kw_journal_frame_bytes(const kw_commit_group *group);

/* Returns the bytes of the largest frame that the journal takes. Any thread. */
size_t kw_journal_max_frame(const kw_journal *journal);

/* }====== */

#endif
