/* SPDX-License-Identifier: MIT
 *
 * surplus: memory that the store has freed but malloc keeps.
 *
 * malloc keeps freed memory inside of its heap for later allocations. The store estimates how much it has freed, and
 * returns this memory to the system in steps. Each step examines all free blocks, so a step is due only when a whole
 * portion was freed, or when a smaller amount was freed and no more follows for a while.
 */
#ifndef KW_STORE_SURPLUS_H
#define KW_STORE_SURPLUS_H

#include "base/mem.h"

typedef struct kw_store kw_store;

/* All zero at first, except that due_at is KW_NEVER. */
typedef struct kw_surplus {
  size_t most;    /* maximum bytes in use since memory was last returned */
  size_t freed;   /* how many of these bytes were free when the last step ended */
  int64_t due_at; /* KW_NEVER: there is too little to return */
  kw_mem_trim trim;
  bool is_trimming;
} kw_surplus;

/* Returns about how much memory the index takes, in bytes. */
size_t kw_surplus_index_bytes(const kw_store *store);

/* Notes how much memory is in use, before a step frees some of it. */
void kw_surplus_note(kw_store *store);

/* Returns when memory has to be returned to the system, or KW_NEVER. */
int64_t kw_surplus_deadline(const kw_store *store);

/* Returns some memory to the system if that is due. */
void kw_surplus_step(kw_store *store, int64_t now);

#endif
