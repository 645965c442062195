/* SPDX-License-Identifier: MIT
 *
 * work: how much one turn may still do for a request. A visit is an access to one key or record, or to KW_WORK_BYTES
 * bytes. A function that takes a kw_work stops when no visit is left, stores its position, and returns KW_UNFINISHED;
 * the next turn calls it again with new work.
 */
#ifndef KW_STORE_WORK_H
#define KW_STORE_WORK_H

#include "base/common.h"

/* Positive results, like KW_UNSETTLED: neither KW_OK nor an error. */
#define KW_UNFINISHED 2 /* the work is used up */
#define KW_ONLY_READS 3 /* the work is used up, and the op, as far as it will run, writes nothing */
#define KW_STALE 4      /* the revision of a long read no longer exists */

/* Visits of one turn: about a millisecond. */
#define KW_WORK_TURN KW_LIMIT(5000, 16)

#define KW_WORK_BYTES 1024                 /* bytes that count as a visit */
#define KW_ORDER_BYTES (3 * KW_WORK_BYTES) /* bytes that are read to sort one item of a sorter */

typedef struct kw_work {
  int64_t left; /* visits */
} kw_work;

/* Returns the work of one turn. */
static inline kw_work kw_work_of_turn(void) {
  return (kw_work){.left = KW_WORK_TURN};
}

/* Returns unlimited work: the call is done in one piece. */
static inline kw_work kw_work_without_end(void) {
  return (kw_work){.left = INT64_MAX};
}

/* True if there is work left. */
static inline bool kw_work_is_left(const kw_work *work) {
  return work->left > 0;
}

/* Subtracts a visit that reads `bytes` bytes. */
static inline void kw_work_spend(kw_work *work, size_t bytes) {
  work->left -= 1 + (int64_t)(bytes / KW_WORK_BYTES);
}

#endif
