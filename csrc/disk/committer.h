/* SPDX-License-Identifier: MIT
 *
 * committer: makes the commit groups of a durable store durable, one after the other.
 *
 *   gathering group   changes are added to it
 *        | submit
 *   submitted group   the commit thread appends it to the journal, and flushes once; or, if it is a *direct* group,
 *        |            the checkpointer writes it to the database after all groups before it
 *        | take
 *   outcome           kw_committer_take returns it
 *        |
 *   pending group     durable in the journal, until a checkpoint has written it to the database
 *
 * There is at most one submitted group; the next one gathers at the same time. A group is direct if it comes with a
 * checkpoint or a defragmentation, or if the journal has no space for it. The threads only write, copy and ring the
 * bell: everything else happens in the caller's thread.
 */
#ifndef KW_DISK_COMMITTER_H
#define KW_DISK_COMMITTER_H

#include "base/histogram.h"
#include "disk/checkpointer.h"

typedef struct kw_committer kw_committer;

/* What a committer counts for metrics. Only groups and checkpoints count that have succeeded. */
typedef struct kw_committer_counters {
  uint64_t groups;         /* that became durable */
  uint64_t direct;         /* groups that were direct */
  uint64_t slow;           /* groups that took longer than KW_SLOW_GROUP_NS */
  uint64_t checkpoints;    /* transactions of the database */
  uint64_t journal_bytes;  /* written to the journal */
  kw_histogram changes;    /* changes of a group; records that are adjacent in memory count once */
  kw_histogram group;      /* time from the submit of a group to its end */
  kw_histogram append;     /* time of a write to the journal, with its flush */
  kw_histogram checkpoint; /* time of a transaction of the database */
  kw_histogram copy;       /* time of a defragmentation's copy */
} kw_committer_counters;

#define KW_SLOW_GROUP_NS 100000000 /* from which on etcd calls an apply slow */

/* What is done together with the write of a submitted group. */
typedef enum kw_commit_how {
  KW_COMMIT_ALONE,
  KW_COMMIT_WITH_CHECKPOINT, /* the database has the group, and all earlier ones, when the group is taken */
  KW_COMMIT_WITH_DEFRAGMENTATION /* the same, and a copy without gaps replaces the database */
} kw_commit_how;

/* Starts the threads for a database, which must stay open until the committer is closed. Without `has_threads`, makes
 * workers without threads. `segment_bytes` is the size of new segments of the journal, which is opened for the first
 * group that is not direct. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_STORAGE if no thread can be started. */
int kw_committer_start(kw_database *database, int64_t segment_bytes, bool has_threads,
                       kw_committer **committer);

/* Returns worker 0, which appends, or worker 1, which writes checkpoints; NULL for other numbers. */
kw_worker *kw_committer_worker(kw_committer *committer, int number);

/* Waits until the submitted group is durable, and the database has all durable groups; then ends the threads and frees
 * the committer. Discards the gathering group. If the database cannot be written, the groups that it lacks stay in the
 * journal. In a child process, which does not inherit threads, only frees memory. */
void kw_committer_close(kw_committer *committer);

/* Sets the bell that rings after each group, after each checkpoint, and at the time of kw_committer_ring_at. The
 * committer takes the caller's reference. */
void kw_committer_set_bell(kw_committer *committer, kw_bell bell);

/* Returns the gathering group. The pointer is valid until the committer is closed. */
kw_commit_group *kw_committer_group(kw_committer *committer);

/* True if a group can be submitted: none is being written, and none waits to be taken. */
bool kw_committer_is_idle(const kw_committer *committer);

/* Submits the gathering group, which becomes durable with `meta` and the next sequence. A new group gathers from now
 * on. The committer must be idle. */
void kw_committer_submit(kw_committer *committer, const kw_commit_meta *meta, kw_commit_how how);

/* Takes the submitted group if it is finished; with `wait`, waits until it is. Returns false if there is none. Sets
 * *meta to the group's meta, and *rc to its outcome: KW_OK; KW_ERR_NO_SPACE or KW_ERR_NO_MEMORY if the group was not
 * written (after KW_ERR_NO_SPACE some of its removals may be written); KW_ERR_STORAGE if it is unknown what was
 * written. Takes a finished checkpoint, too: the database's reader may have moved on, and what it read before is then
 * no longer valid. */
bool kw_committer_take(kw_committer *committer, bool wait, kw_commit_meta *meta, int *rc);

/* Returns about how many nanoseconds a flush takes; 0 unless the last submitted group was taken, and is in the
 * journal. */
int64_t kw_committer_flush_ns(const kw_committer *committer);

/* Makes the bell ring at a time of kw_clock_ns, unless a group is appended earlier. Called only after a group was
 * appended to the journal. */
void kw_committer_ring_at(kw_committer *committer, int64_t when);

/* Called after a failure was taken, before the next submit. Forgets the failed group and the gathering one, but keeps
 * the removals of both for the next group. A removal may be repeated, and may be delayed: removals are in an order in
 * which a tombstone outlasts the records that it hides. Returns KW_OK, or KW_ERR_NO_MEMORY if removals were lost. */
int kw_committer_forget(kw_committer *committer);

/* Returns the outcome of the last defragmentation whose group was written and taken: KW_OK, KW_ERR_CORRUPT,
 * KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE; KW_OK if there was none. The data are complete after any of
 * these. Sets *number to the errno, or error of LMDB, that caused KW_ERR_STORAGE; 0 if unknown. */
int kw_committer_defragmented(const kw_committer *committer, int *number);

/* Returns counters that are all 0. */
kw_committer_counters kw_committer_counters_new(void);

/* Returns the counters of a committer, valid until it is closed. */
const kw_committer_counters *kw_committer_get_counters(const kw_committer *committer);

/* {====== Checkpoints ====== */

/* True if there are durable groups that the database lacks. */
bool kw_committer_is_behind(const kw_committer *committer);

/* True if the checkpointer is working, or its outcome waits to be taken. */
bool kw_committer_is_checkpointing(const kw_committer *committer);

/* True if the pending groups, or the journal, are large enough for a checkpoint. */
bool kw_committer_is_full(const kw_committer *committer);

/* True if a pending group removes records. */
bool kw_committer_has_removals(const kw_committer *committer);

/* Returns the bytes of the records and rows that are durable, and that the database lacks. */
size_t kw_committer_lacking_bytes(const kw_committer *committer);

/* Returns why the last checkpoint has to be repeated: KW_ERR_NO_SPACE or KW_ERR_NO_MEMORY; KW_OK if there is nothing to
 * repeat. */
int kw_committer_repeats(const kw_committer *committer);

/* Returns KW_OK, or KW_ERR_STORAGE if it is unknown what was written: every later group fails. */
int kw_committer_failure(const kw_committer *committer);

/* Returns the cause of kw_committer_failure; no fault after KW_OK. */
kw_fault kw_committer_fault(const kw_committer *committer);

/* Begins a checkpoint. Does nothing if the checkpointer is not idle, if memory is short, or after KW_ERR_STORAGE. */
void kw_committer_checkpoint(kw_committer *committer);

/* Returns the numbers of the newest group that the database has, and that its reader sees. */
const kw_commit_meta *kw_committer_applied(const kw_committer *committer);

/* Returns the durable groups that the database lacks, in their order; `which` is 0, then 1. */
const kw_commit_group *kw_committer_lacking(const kw_committer *committer, int which);

/* }====== */

#endif
