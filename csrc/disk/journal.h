/* SPDX-License-Identifier: MIT
 *
 * journal: commit groups that are durable before LMDB has them.
 *
 * The durable path. A commit group is appended to the journal as one frame, by one write with its flush: the group is
 * durable then, and its writers are answered. Later a checkpoint writes many groups to LMDB in one transaction, with a
 * sync, and releases their frames. After a crash, recovery reads the frames that LMDB lacks. disk/committer.h has the
 * threads; the journal knows nothing of LMDB: its caller says which groups LMDB has.
 *
 *   a segment, the file journal-SLOT; there are up to KW_JOURNAL_SEGMENTS, all of one size:
 *
 *   0          4 KiB
 *   | header   | frame  | frame            | frame  | frames of an earlier use, or zeros            | size
 *                4 KiB    12 KiB             4 KiB
 *
 *   - The header is written once, when the file is made. It has the id of the store and a random salt.
 *   - A frame has a header of its own, and is padded to blocks of 4 KiB. A frame header has the salt, so that no value
 *     of a user can be mistaken for a frame; the sequence of the group; and the epoch. Header and payload have a
 *     checksum each.
 *   - Frames are appended to the current segment. If it is full, a free segment becomes the current one, from its
 *     beginning. A segment is free when all its frames are released. If none is free, a new file is made; if there are
 *     as many as there may be, or no room for one, the group does not go to the journal: LMDB takes it directly.
 *   - A frame is written only after the frame before it is durable. So if a frame header can be read, all frames before
 *     it were durable once.
 *
 * A sequence numbers the groups, without gaps. A group that goes to LMDB directly has a sequence, too, and no frame;
 * LMDB then has all groups before it. An epoch is the time between kw_journal_open and the next one; LMDB stores the
 * epoch before the first append in it.
 *
 * Recovery looks for a frame header at every block of every segment. The order of the segments does not matter. Frames
 * of an earlier epoch, or of a group that LMDB has, are frames of an earlier use, and are ignored. The sequences of the
 * others have to follow each other, from the one on that LMDB lacks first:
 *
 *   the last frame is damaged or absent    the end of the journal: a torn write, which was never acknowledged. Damage
 *                                          of the last frame on the disk cannot be told from a torn write
 *   another frame is damaged or absent     refused: an acknowledged group is lost
 *   a frame of a later epoch               refused: LMDB is older than its journal
 *
 * Nothing is repaired. Numbers in the files are big-endian. The reader trusts no length of a file.
 */
#ifndef KW_DISK_JOURNAL_H
#define KW_DISK_JOURNAL_H

#include "disk/commit_group.h"

#define KW_JOURNAL_SEGMENTS 4
#define KW_JOURNAL_WHY_ROOM 256 /* bytes of a sentence that says why a journal is refused */

/* Bytes of a segment. A segment above the last number is neither made nor read. */
#define KW_JOURNAL_BYTES (INT64_C(16) << 20)
#define KW_JOURNAL_MAX_BYTES (INT64_C(1) << 30)

/* {====== Recovery ====== */

/* What is known of the journal before it is read. */
typedef struct kw_journal_expected {
  uint64_t store_id;
  uint64_t epoch;  /* that LMDB has stored */
  int64_t applied; /* sequence of the last group that LMDB has */
  bool is_closed;  /* LMDB has all groups: only the beginnings of the segments are checked */
} kw_journal_expected;

/* What a journal has beyond the applied groups. All zero: nothing. */
typedef struct kw_journal_recovered {
  bool has_files;
  kw_commit_group group; /* all changes of these groups, in order; meta is that of the last group */
  int64_t groups;        /* number of these groups */
  kw_blob **records;     /* those that the changes borrow; owned */
  size_t n_records;
  size_t cap_records;
} kw_journal_recovered;

/* Reads the journal of a directory: all groups of the epoch beyond the applied ones. Removes the unfinished segment
 * that a crash has left, and changes nothing else. A directory without a journal is an empty journal. Returns KW_OK;
 * KW_ERR_NO_MEMORY; KW_ERR_STORAGE if a file cannot be read, or KW_ERR_NO_SPACE if the system gives that as the
 * reason; or KW_ERR_CORRUPT if the journal is damaged, or is not the one of this store and epoch. After an error
 * *result is all zero, and `why` says why, without the path. */
int kw_journal_recover(const char *directory, const kw_journal_expected *expected,
                       kw_journal_recovered *result, char why[KW_JOURNAL_WHY_ROOM]);

/* Frees everything. *result is then all zero. */
void kw_journal_recovered_drop(kw_journal_recovered *result);

/* }====== */

/* {====== Writing ====== */

typedef struct kw_journal kw_journal;

typedef struct kw_journal_options {
  uint64_t store_id;     /* segments of another store are refused by recovery */
  uint64_t epoch;        /* above that of every frame of the directory */
  int64_t segment_bytes; /* size of the segments that are made; 0: KW_JOURNAL_BYTES */
  /* False if the path may mean another directory now. Any thread. NULL: it never does. */
  bool (*is_in_place)(void *ctx);
  void *ctx;
} kw_journal_options;

/* Opens the journal of a directory for a new epoch. Comes after recovery, when LMDB has all groups: all segments of the
 * directory are free. Makes the first one, if there is none. The caller then stores the new epoch in LMDB, durably,
 * before the first append. Returns KW_OK, KW_ERR_NO_MEMORY, KW_ERR_NO_SPACE or KW_ERR_STORAGE. */
int kw_journal_open(const char *directory, const kw_journal_options *options, kw_journal **journal);

/* Returns the bytes of the files of a directory's journal. */
int64_t kw_journal_bytes_in(const char *directory);

/* Removes the journal of a directory: the caller has all its groups elsewhere, durably. */
void kw_journal_remove(const char *directory);

/* Closes the files, and frees the journal. No other call may be running. A child of a fork may call this function, and
 * no other one. */
void kw_journal_close(kw_journal *journal);

/* Makes a group durable. meta.sequence is above that of the last group. Called by one thread at a time, the commit
 * thread. Returns KW_OK. Or, and nothing has happened: KW_ERR_NO_MEMORY; KW_ERR_NO_SPACE if no segment has room for
 * the frame, and none can be made. Or KW_ERR_STORAGE, and it is unknown whether the group is durable; then every later
 * append returns KW_ERR_STORAGE. */
int kw_journal_append(kw_journal *journal, const kw_commit_group *group);

/* Returns the nanoseconds that the write of the last frame took, with its flush. Called by the thread that appends. */
int64_t kw_journal_write_ns(const kw_journal *journal);

/* Says that the groups up to this sequence are durable in LMDB. Any thread. Does no I/O. */
void kw_journal_release(kw_journal *journal, int64_t sequence);

/* True if it is time for a checkpoint: half of the segments that may be have frames that are not released. Any
 * thread. */
bool kw_journal_is_filling(const kw_journal *journal);

/* }====== */

#endif
