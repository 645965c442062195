/* SPDX-License-Identifier: MIT
 *
 * journal: commit groups that are durable before they are in LMDB.
 *
 * The durable path. A commit group is appended to the journal as one frame, by one write with its flush: then the group
 * is durable, and its writers are answered. Later a checkpoint writes many groups to LMDB in one transaction, with a
 * sync, and releases their frames. After a crash, recovery reads the frames that LMDB lacks. disk/committer.h has the
 * threads. The journal does not use LMDB: its caller reports which groups LMDB has.
 *
 *   a segment, the file journal-SLOT; there are up to KW_JOURNAL_SEGMENTS, all of one size:
 *
 *   0          4 KiB
 *   | header   | frame  | frame            | frame  | frames of an earlier use, or zeros            | size
 *                4 KiB    12 KiB             4 KiB
 *
 *   - The header is written once, when the file is made. It has the id of the store and a random salt.
 *   - A frame has a header of its own, and is padded to blocks of 4 KiB. A frame header has the salt, so that no value
 *     of a user can be mistaken for a frame; the sequence of the group; and the epoch. Header and payload each have a
 *     checksum.
 *   - Frames are appended to the current segment. If it is full, a free segment becomes the current one, from the
 *     beginning. A segment is free when all its frames are released. If none is free, a new file is made; if there are
 *     as many as there may be, or no space for one, the group skips the journal, and is written to LMDB directly.
 *   - A frame is written only after the frame before it is durable. So if a frame header can be read, all frames before
 *     it were durable once.
 *
 * The sequence of a group is its number, without gaps. A group that is written to LMDB directly has a sequence, too,
 * but no frame; LMDB then has all groups before it. An epoch is the time between kw_journal_open and the next one; LMDB
 * stores the epoch before the first append in it.
 *
 * Recovery looks for a frame header at every block of every segment. The order of the segments does not matter. Frames
 * of an earlier epoch, or of a group that LMDB has, are frames of an earlier use, and are ignored. The sequences of the
 * other frames must be consecutive, from the first group on that LMDB lacks:
 *
 *   the last frame is damaged or absent    the end of the journal: a torn write, which was never acknowledged. Later
 *                                          damage of the last frame cannot be distinguished from a torn write
 *   another frame is damaged or absent     refused: an acknowledged group is lost
 *   a frame of a later epoch               refused: LMDB is older than its journal
 *
 * Nothing is repaired. Numbers in the files are big-endian. The reader trusts no length of a file.
 */
#ifndef KW_DISK_JOURNAL_H
#define KW_DISK_JOURNAL_H

#include "disk/commit_group.h"

#define KW_JOURNAL_SEGMENTS 4
#define KW_JOURNAL_WHY_ROOM 256 /* bytes of a sentence that explains why a journal is refused */

/* Bytes of a segment. Segments larger than the last number are neither made nor read. */
#define KW_JOURNAL_BYTES (INT64_C(16) << 20)
#define KW_JOURNAL_MAX_BYTES (INT64_C(1) << 30)

/* {====== Recovery ====== */

/* What the caller knows about the journal before it is read. */
typedef struct kw_journal_expected {
  uint64_t store_id;
  uint64_t epoch;  /* that LMDB has stored */
  int64_t applied; /* sequence of the last group that LMDB has */
  bool is_closed;  /* LMDB has all groups: only the beginnings of the segments are checked */
} kw_journal_expected;

/* The groups that only the journal has. All zero: none. */
typedef struct kw_journal_recovered {
  bool has_files;        /* the directory has a segment */
  kw_commit_group group; /* all changes of these groups, in order; meta is that of the last group */
  int64_t groups;        /* number of these groups */
  kw_blob **records;     /* owned; the changes borrow them */
  size_t n_records;
  size_t cap_records;
} kw_journal_recovered;

/* Reads the journal of a directory: all groups of the epoch after the applied ones. Removes an unfinished segment that
 * a crash has left, and changes nothing else. A directory without a journal counts as an empty journal. Returns KW_OK;
 * KW_ERR_NO_MEMORY; KW_ERR_STORAGE if a file cannot be read, or KW_ERR_NO_SPACE if the system reports that as the
 * reason; or KW_ERR_CORRUPT if the journal is damaged, or does not belong to this store and epoch. After an error
 * *result is all zero, and `why` has the reason, without the path. */
int kw_journal_recover(const char *directory, const kw_journal_expected *expected,
                       kw_journal_recovered *result, char why[KW_JOURNAL_WHY_ROOM]);

/* Frees everything. *result is then all zero. */
void kw_journal_recovered_drop(kw_journal_recovered *result);

/* }====== */

/* {====== Writing ====== */

typedef struct kw_journal kw_journal;

typedef struct kw_journal_options {
  uint64_t store_id;     /* recovery refuses segments of another store */
  uint64_t epoch;        /* higher than that of every frame in the directory */
  int64_t segment_bytes; /* size of the segments that are made; 0: KW_JOURNAL_BYTES */
  /* Returns false if the path may now lead to another directory. Called in any thread. NULL: this is not checked. */
  bool (*is_in_place)(void *ctx);
  void *ctx;
} kw_journal_options;

/* Opens the journal of a directory for a new epoch. Called after recovery, when LMDB has all groups, and so all
 * segments are free. Makes the first segment if there is none. The caller then stores the new epoch in LMDB, durably,
 * before the first append. Returns KW_OK; or KW_ERR_NO_MEMORY, KW_ERR_NO_SPACE or KW_ERR_STORAGE, and *journal is then
 * NULL. */
int kw_journal_open(const char *directory, const kw_journal_options *options, kw_journal **journal);

/* Returns the total size of the journal's files in a directory. */
int64_t kw_journal_bytes_in(const char *directory);

/* Removes the journal of a directory. All its groups must be durable elsewhere. */
void kw_journal_remove(const char *directory);

/* Closes the files, and frees the journal. No other call may be running. After a fork the child may call only this
 * function. */
void kw_journal_close(kw_journal *journal);

/* Makes a group durable. meta.sequence is above that of the last group. Called only by the commit thread. Returns
 * KW_OK. Returns KW_ERR_NO_MEMORY, or KW_ERR_NO_SPACE if the disk is full, or if no segment has space for the frame and
 * none can be made: the journal does not have the group then. Returns KW_ERR_STORAGE if it is unknown whether the group
 * is durable: every later append then returns KW_ERR_STORAGE, too. */
int kw_journal_append(kw_journal *journal, const kw_commit_group *group);

/* Returns how many nanoseconds the write of the last frame took, with its flush. Called by the thread that appends,
 * or while it is idle. */
int64_t kw_journal_write_ns(const kw_journal *journal);

/* Returns the bytes of all frames that were written. Called by the thread that appends, or while it is idle. */
uint64_t kw_journal_written(const kw_journal *journal);

/* Releases the groups up to this sequence, which are durable in LMDB. Any thread. Does no I/O. */
void kw_journal_release(kw_journal *journal, int64_t sequence);

/* True if it is time for a checkpoint: at least half of KW_JOURNAL_SEGMENTS have frames that are not released. Any
 * thread. */
bool kw_journal_is_filling(const kw_journal *journal);

/* }====== */

#endif
