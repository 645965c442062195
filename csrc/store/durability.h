/* SPDX-License-Identifier: MIT
 *
 * durability: from committed to durable. For the files of this folder only; store.h has the public part.
 *
 * A flush submits the gathering commit group to the committer. A poll takes the outcome. After success the group is in
 * the journal, and its revisions become visible; a checkpoint writes the group to the database later. After a failure
 * the store returns to its durable state: the group is undone, and with it everything that was committed later. This
 * may take several turns, during which the store is busy and the tickets are not settled.
 *
 *   no space     the alarm is raised
 *   no memory    callers get the error, and may retry
 *   otherwise    the outcome is unknown: the store is read-only until it is opened again
 */
#ifndef KW_STORE_DURABILITY_H
#define KW_STORE_DURABILITY_H

#include "store/state.h"

/* Initializes store->durability. Called once, after the database of a durable store was opened. */
void kw_durability_init(kw_store *store);

/* Returns the time at which a failed group of background changes is retried, or a checkpoint is due; or KW_NEVER. */
int64_t kw_durability_deadline(const kw_store *store);

/* Ends the delay of a failed group of background changes if it is due: the next flush submits the group. Begins a
 * checkpoint that is due. */
void kw_durability_step(kw_store *store, int64_t now);

/* Continues to undo failed groups, while durability.failed is set. Returns true when all are undone: the failure is
 * settled then, and the long write, if there is one, is rolled back in later turns. */
bool kw_durability_undo(kw_store *store, kw_work *work);

#endif
