/* SPDX-License-Identifier: MIT
 *
 * surplus: memory that the store has freed, and that malloc keeps.
 *
 * malloc keeps freed memory inside of its heap for later allocations. The store estimates how much it has freed, and
 * gives the memory back to the system in steps: when it has freed a portion, since all free blocks have to be looked
 * at; and, if that is less than a portion, when no more was freed for a while.
 */
#ifndef KW_STORE_SURPLUS_H
#define KW_STORE_SURPLUS_H

#include "base/mem.h"

typedef struct kw_store kw_store;

/* All zero at first, except that due_at is KW_NEVER. */
typedef struct kw_surplus {
  size_t most;    /* bytes that were in use at most since memory was given back */
  size_t freed;   /* of them, when the last step ended */
  int64_t due_at; /* KW_NEVER: there is too little to give back */
  kw_mem_trim trim;
  bool is_trimming;
} kw_surplus;

/* Notes how much memory is in use, before a step frees some of it. */
void kw_surplus_note(kw_store *store);

/* Returns when memory is to be given back, or KW_NEVER. */
int64_t kw_surplus_deadline(const kw_store *store);

/* Gives some memory back if that is due. */
void kw_surplus_step(kw_store *store, int64_t now);

#endif
