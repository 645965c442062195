/* SPDX-License-Identifier: MIT
 *
 * compaction: removes history before a revision, in bounded steps. For the files of this folder only.
 *
 * For each key, a compaction at revision R removes every change before R that a later change, at or before R, has
 * replaced; and every tombstone before R. It visits the records from the revision of the last compaction on: also that
 * revision again, since its tombstones were left. The visit of a record removes the older records of its key that are
 * replaced now, and the record itself if it is replaced. Nearly all records are removed in the order of revisions, so
 * that neighbours on the disk are removed together.
 *
 *   put a at 2, put b at 3, put a at 4, delete b at 5, put c at 6; compact(5):
 *     visit 2, 3    removed: replaced by 4 and 5      visit 4    remains
 *     visit 5       remains: a watch from 5 has to see it
 *   put a at 7; compact(7): visit 5 again, removed, since it is before 7; visit 6; visit 7: 4 is removed
 *
 * The cost depends on the changes since the last compaction, not on the number of keys.
 */
#ifndef KW_STORE_COMPACTION_H
#define KW_STORE_COMPACTION_H

#include "store/state.h"

/* Sets the compacted revision to `rev`, and starts to visit records, or extends the running visit. A durable store
 * calls this once the compaction is durable. */
void kw_compaction_start(kw_store *store, int64_t rev);

/* Sets the compacted revision to `rev`, which may be lower than before: all records are new, and no compaction is
 * running. */
void kw_compaction_reset(kw_store *store, int64_t rev);

/* Returns when the next step is due: INT64_MIN, or a later time if memory was short in the last step. Returns KW_NEVER
 * if there are no records to visit, if a damaged record stops the compaction, if a snapshot is gathering, if the
 * gathering commit group is too large, or if the compaction waits for a checkpoint or for deliveries to watchers, see
 * kw_store_hook. */
int64_t kw_compaction_deadline(const kw_store *store);

/* True if the running compaction waits for a checkpoint: only records that the database has can be removed. */
bool kw_compaction_is_waiting(const kw_store *store);

/* Visits a bounded number of records; the next step may continue within a revision. Returns true if another step can
 * follow at once. If memory is short, the next step is due after KW_RETRY_MS. A damaged record arms the alarm
 * KW_ALARM_CORRUPT; the compaction is stuck until the alarm is disarmed. */
bool kw_compaction_step(kw_store *store);

/* Returns compacted_until for the next commit group: the first revision that has to be visited once the requested
 * compaction is durable. If a revision was visited in part, its remaining records are visited next; after a reopen, all
 * its records are visited: a record that was kept is kept again. */
int64_t kw_compaction_next(const kw_store *store);

#endif
