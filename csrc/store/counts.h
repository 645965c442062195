/* SPDX-License-Identifier: MIT
 *
 * counts: how many keys a range has at an old revision, for the ranges that are likely to be read next. A client that
 * lists with a limit next asks for the rest of its range: that range need not be counted again for each page.
 *
 * The content at an old revision never changes, unless the store is rewritten, see kw_store.rewrites.
 */
#ifndef KW_STORE_COUNTS_H
#define KW_STORE_COUNTS_H

#include "base/blob.h"
#include "model/range.h"

#define KW_COUNTS 64
#define KW_COUNTS_KEY_MAX 4096 /* bytes of key and end; longer ranges are not stored */

typedef struct kw_count {
  kw_blob *bytes; /* the key and the end; NULL: this entry is empty */
  size_t key_len;
  int64_t revision;
  uint64_t rewrites;
  int64_t count;
} kw_count;

/* All zero, the table is empty and ready for use. */
typedef struct kw_counts {
  kw_count all[KW_COUNTS];
  /* Number of counts that were added; modulo KW_COUNTS, the oldest entry, which is replaced next. */
  size_t next;
} kw_counts;

/* Frees the table's memory. */
void kw_counts_drop(kw_counts *counts);

/* Stores the count of the part of a range after `last`. Does nothing if its key and end are too long, or if memory is
 * short. */
void kw_counts_add(kw_counts *counts, kw_slice last, kw_slice end, int64_t revision,
                   uint64_t rewrites, int64_t count);

/* Returns the count of a range, or -1 if the table does not have it. */
int64_t kw_counts_find(const kw_counts *counts, const kw_range *range, int64_t revision,
                       uint64_t rewrites);

#endif
