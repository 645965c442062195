/* SPDX-License-Identifier: MIT
 *
 * disk: holds the threads that write for a durable store, or makes them fail.
 */
#ifndef KW_PROBE_DISK_H
#define KW_PROBE_DISK_H

#include "disk/checkpointer.h"
#include "disk/committer.h"
#include "disk/worker.h"

/* While `hold` is true, the thread begins no job. */
void kw_worker_hold(kw_worker *worker, bool hold);

/* While `hold` is true, the threads begin nothing. */
void kw_committer_hold(kw_committer *committer, bool hold);

/* While `hold` is true, the checkpointer begins nothing: groups become durable in the journal alone. */
void kw_committer_hold_checkpoints(kw_committer *committer, bool hold);
void kw_checkpointer_hold(kw_checkpointer *c, bool hold);

/* Makes the next group fail with `rc` instead of being written. KW_OK: it is written. */
void kw_committer_fail_next(kw_committer *committer, int rc);
void kw_checkpointer_fail_next(kw_checkpointer *c, int rc);

/* Returns how the next group fails, and ends that. */
int kw_checkpointer_take_failure(kw_checkpointer *c);

/* Return NULL if every invariant holds, else the text of one that does not. */
const char *kw_committer_check(const kw_committer *committer);
const char *kw_checkpointer_check(const kw_checkpointer *c);

/* While true, kw_journal_segment_write leaves out the flush. */
void kw_journal_segment_skip_flush(bool skip);

/* How often the thread of a store has waited for that of a snapshot. */
extern uint64_t kw_snapshot_waits;

#endif
