/* SPDX-License-Identifier: MIT
 *
 * compaction: forgetting history before a revision, in bounded steps. For the files of this folder only.
 *
 * Forgetting up to R means: of each key, every change that a later one with main <= R has replaced, and every
 * tombstone before R. So it is enough to visit the records that were written since the last compaction: each of them
 * goes if it was replaced, and replaced what the last compaction has left of its key. Nearly all go in the order of
 * revisions, so that what lies side by side on a disk goes together.
 *
 *   put a at 2, put b at 3, put a at 4, delete b at 5, put c at 6; compact(5):
 *     visit 2, 3    they go, for 4 and 5          visit 4    it stays
 *     visit 5       it stays, a watch from 5 has to see it
 *   put a at 7; compact(7): visit 5 again, which is before 7 now, and b is gone; visit 6; visit 7, and 4 goes
 *
 * The cost is that of the changes since the last compaction, not of the keys that there are.
 */
#ifndef KW_STORE_COMPACTION_H
#define KW_STORE_COMPACTION_H

#include "store/state.h"

/* Moves the compacted revision up to `rev` and starts, or extends, the visit. */
void kw_compaction_start(kw_store *store, int64_t rev);

/* Whether a step can be done now: there may be nothing left, or the disk has enough to do. */
bool kw_compaction_is_due(const kw_store *store);

/* Visits some records; returns whether another step can follow at once. Where a record cannot be read, the alarm
 * "corrupt" is raised, and nothing is visited until it is out. */
bool kw_compaction_step(kw_store *store);

/* Where the visit has to go on once all that was asked for is durable. */
int64_t kw_compaction_next(const kw_store *store);

#endif
