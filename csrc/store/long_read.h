/* SPDX-License-Identifier: MIT
 *
 * long_read: a transaction that writes nothing, evaluated in several turns at one revision. Other writes may happen
 * between the turns. The owner calls the steps.
 *
 * The revision is the visible one; or, for a transaction whose compares could have made it write, the applied one, at
 * which it was found not to. Then the answer has seen what may not be durable yet, and waits for the ticket.
 */
#ifndef KW_STORE_LONG_READ_H
#define KW_STORE_LONG_READ_H

#include "store/store.h"

typedef struct kw_long_read kw_long_read;

/* Begins a read of an op that kw_store_apply_within has returned KW_ONLY_READS for, or a long write has ended with; the
 * store has not changed since. Op, arena and reply outlive the read. `limit` bounds the memory of the reply's records,
 * each of which is given to on_record with `ctx`. Returns NULL if memory is short. */
kw_long_read *kw_long_read_new(kw_store *store, const kw_op *op, size_t limit,
                               kw_on_record on_record, void *ctx, kw_arena *arena, kw_reply *reply);

/* Continues until the reply is complete, or the work is used up. Returns KW_OK, KW_UNFINISHED or an error of
 * kw_store_apply, also that of a commit group that has failed since; KW_STALE if the revision was compacted or undone
 * between two steps: then the caller can begin a new read. After an error the read can only be freed. */
int kw_long_read_step(kw_store *store, kw_long_read *read, kw_work *work);

/* Returns a ticket for all writes that the read has seen. */
uint64_t kw_long_read_ticket(const kw_long_read *read);

/* Frees a read, also after its store. */
void kw_long_read_free(kw_long_read *read);

#endif
