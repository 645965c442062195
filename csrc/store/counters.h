/* SPDX-License-Identifier: MIT
 *
 * counters: what a store counts for metrics. Counters begin at 0 when the store is opened, and never decrease.
 *
 * Operations of a write are counted when the write is committed: those of an open write are in `counting` of the store,
 * and are dropped with it by a rollback. A write whose commit group fails later stays counted.
 */
#ifndef KW_STORE_COUNTERS_H
#define KW_STORE_COUNTERS_H

#include "base/histogram.h"

typedef struct kw_op_counts {
  uint64_t puts;
  uint64_t put_bytes; /* of keys and values */
  uint64_t deletes;   /* operations, and keys of revoked leases */
  uint64_t ranges;    /* that have been read to their end */
  uint64_t txns;
  uint64_t granted; /* leases */
} kw_op_counts;

typedef struct kw_store_counters {
  kw_op_counts ops;
  uint64_t renewed;              /* leases */
  uint64_t undone;               /* revisions of commit groups that have failed */
  uint64_t removed;              /* records, by compactions */
  kw_histogram lease_ttl;        /* granted, in seconds */
  kw_histogram compaction;       /* time from the first to the last step of a compaction */
  kw_histogram compaction_pause; /* time of a step */
} kw_store_counters;

/* Returns counters that are all 0. */
kw_store_counters kw_store_counters_new(void);

#endif
