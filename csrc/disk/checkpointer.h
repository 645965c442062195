/* SPDX-License-Identifier: MIT
 *
 * checkpointer: the thread that writes the database of a durable store.
 *
 * A *pending* group is durable in the journal, and not yet in the database. A checkpoint writes the pending groups to
 * the database in one transaction, fully synced; the journal can then reuse their space. A *direct* group is in no
 * journal: the thread writes the pending groups, and then the direct group in a second transaction.
 *
 *   pending    groups are added while the thread writes others
 *      | begin
 *   applying   belongs to the thread until the outcome is taken
 *      | take: the reader of the database moves on
 *   applied
 *
 * If a checkpoint fails for lack of space or memory, its groups remain, and the next checkpoint begins with them; some
 * of their removals may be in the database. The records of all these groups must stay at their addresses until the
 * groups are applied. All functions are called by the owner's thread.
 */
#ifndef KW_DISK_CHECKPOINTER_H
#define KW_DISK_CHECKPOINTER_H

#include "disk/database.h"
#include "disk/journal.h"
#include "disk/worker.h"

typedef struct kw_checkpointer kw_checkpointer;

/* Starts the thread; without `has_threads`, makes a worker without a thread. The database must outlive the
 * checkpointer. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_STORAGE if no thread can be started. */
int kw_checkpointer_start(kw_database *database, bool has_threads, kw_checkpointer **result);

/* Returns the worker that writes checkpoints. */
kw_worker *kw_checkpointer_worker(kw_checkpointer *checkpointer);

/* Waits for the thread, ends it, and frees the checkpointer. In a child process, which does not inherit threads, only
 * frees memory. */
void kw_checkpointer_close(kw_checkpointer *c);

/* Sets the bell that rings after each checkpoint. The checkpointer takes the caller's reference. */
void kw_checkpointer_set_bell(kw_checkpointer *c, kw_bell bell);

/* {====== Pending groups ====== */

/* Reserves memory for a group of `n` items. Returns false if memory is short. */
bool kw_checkpointer_reserve(kw_checkpointer *c, size_t n);

/* Adds a group that is in the journal. The journal is the same in all calls, and outlives the checkpointer. The memory
 * for the items of the group was reserved. `bytes` is the size of its records and rows, `need` the bytes that the
 * database may need for the group. The group becomes empty. */
void kw_checkpointer_add(kw_checkpointer *c, kw_journal *journal, kw_commit_group *group,
                         size_t bytes, size_t need);

/* True if there are groups that the database lacks. */
bool kw_checkpointer_is_behind(const kw_checkpointer *c);

/* True if the pending groups are large enough for a checkpoint. */
bool kw_checkpointer_is_full(const kw_checkpointer *c);

/* True if a pending group removes records: a checkpoint would free their pages. */
bool kw_checkpointer_has_removals(const kw_checkpointer *c);

/* Returns the bytes of the records and rows of all groups that the database lacks. */
size_t kw_checkpointer_bytes(const kw_checkpointer *c);

/* Returns the bytes that the database may need for all groups that it lacks. */
size_t kw_checkpointer_need(const kw_checkpointer *c);

/* Returns groups that the database lacks: for 0 those that are being applied, for 1 the pending ones, which are
 * newer. */
const kw_commit_group *kw_checkpointer_lacking(const kw_checkpointer *c, int which);

/* }====== */

/* {====== Checkpoints ====== */

typedef struct kw_checkpoint {
  int rc; /* outcome of the applied groups: KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE */
  bool is_direct; /* the checkpoint had a direct group */
  int direct_rc;  /* outcome of the direct group, one of the same errors */
  int copy_rc; /* outcome of the requested defragmentation, or KW_OK; the data are complete after any error */
  kw_fault fault;    /* the cause of KW_ERR_STORAGE in rc or direct_rc */
  int64_t apply_ns;  /* time of the transaction of the applied groups; 0: none, or it has failed */
  int64_t direct_ns; /* the same of the direct group */
  int64_t copy_ns;   /* the same of the copy of a defragmentation */
  int copy_number; /* the errno, or error of LMDB, that caused a copy_rc of KW_ERR_STORAGE; 0: unknown */
} kw_checkpoint;

/* True if a checkpoint can begin: the thread is not working, and no outcome waits to be taken. */
bool kw_checkpointer_is_idle(const kw_checkpointer *c);

/* Returns why the next checkpoint has to repeat the last one: KW_ERR_NO_SPACE or KW_ERR_NO_MEMORY. The next checkpoint
 * then takes no direct group. Returns KW_OK if there is nothing to repeat. */
int kw_checkpointer_repeats(const kw_checkpointer *c);

/* Begins a checkpoint. The checkpointer must be idle. `direct` is NULL or a direct group, which belongs to the thread
 * until the outcome is taken. With `defragment` the thread then copies the database to a file without gaps, which
 * replaces the database when the outcome is taken. Reserves memory for `n` items of the groups that will be pending
 * from now on, unless the checkpoint repeats the last one: then the pending groups remain. If memory is short, returns
 * false and begins nothing. */
bool kw_checkpointer_begin(kw_checkpointer *c, const kw_commit_group *direct, bool defragment,
                           size_t n);

/* Takes the outcome of a finished checkpoint; with `wait`, waits until the checkpoint is finished. Returns false if
 * there is none. The reader of the database has then moved on, except perhaps after KW_ERR_STORAGE: what it read before
 * is no longer valid. */
bool kw_checkpointer_take(kw_checkpointer *c, bool wait, kw_checkpoint *outcome);

/* Returns the numbers of the newest group that is in the database and that its reader sees. */
const kw_commit_meta *kw_checkpointer_applied(const kw_checkpointer *c);

/* }====== */

#endif
