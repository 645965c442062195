/* SPDX-License-Identifier: MIT
 *
 * long_read: a transaction that writes nothing, evaluated in several turns at one revision. Other writes may happen
 * between the turns. The owner calls the steps.
 *
 * The revision is the visible one. For a transaction that could have written, depending on its compares, it is the
 * applied one, at which the compares were evaluated: the answer may then depend on writes that are not durable yet, and
 * waits for the ticket.
 */
#ifndef KW_STORE_LONG_READ_H
#define KW_STORE_LONG_READ_H

#include "store/store.h"

typedef struct kw_long_read kw_long_read;

/* Begins a read of an op for which kw_store_apply_within has returned KW_ONLY_READS, or whose long write has ended with
 * KW_ONLY_READS; the store has not changed since. Op, arena and reply must outlive the read. `limit` bounds the memory
 * of the reply's records, each of which is passed to on_record with `ctx`. Returns NULL if memory is short. */
kw_long_read *kw_long_read_new(kw_store *store, const kw_op *op, size_t limit,
                               kw_on_record on_record, void *ctx, kw_arena *arena, kw_reply *reply);

/* Continues until the reply is complete, or the work is used up. Returns KW_OK, KW_UNFINISHED, an error of
 * kw_store_apply, or the error of a commit group that has failed since the read began; KW_STALE if, between two steps,
 * the revision was compacted or undone, or a replica got another history: then the caller can begin a new read. After
 * an error or KW_STALE the read can only be freed. */
int kw_long_read_step(kw_store *store, kw_long_read *read, kw_work *work);

/* Returns a ticket for all writes that the read has seen. */
uint64_t kw_long_read_ticket(const kw_long_read *read);

/* Frees a read. Its store may have been freed already. */
void kw_long_read_free(kw_long_read *read);

#endif
