/* SPDX-License-Identifier: MIT
 *
 * compaction: forgetting history before a revision, in bounded steps. For the files of this folder only.
 *
 * Forgetting up to R means: of each key, every change that a later one with main <= R has replaced, and every
 * tombstone before R. So it is enough to visit the records that were written since the last compaction:
 * each of them replaced what its key had before.
 *
 *   put a at 2, put b at 3, put a at 4, delete b at 5, put c at 6; compact(5):
 *     visit 2, 3    nothing is before them        visit 4    2 goes
 *     visit 5       3 goes; 5 itself stays, a watch from 5 has to see it
 *   compact(6): visit 5 again, which is before 6 now, and b is gone; visit 6
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

/* Visits some records; returns whether another step can follow at once. */
bool kw_compaction_step(kw_store *store);

/* Where the visit has to go on once all that was asked for is durable. */
int64_t kw_compaction_next(const kw_store *store);

#endif
