/* SPDX-License-Identifier: MIT
 *
 * read: reads a range of keys at one revision that is still known, in one piece or in steps.
 *
 *   counting -> walking through the keys -> DONE
 *                        |
 *                        +-> sorting -> taking the records in order -> DONE
 *
 * A read in steps stores keys and revisions, but no records, so the store may change between its steps: the read
 * continues at its own revision. The kvs of the reply are returned in pages, in the order of the reply. The keys of the
 * range are counted first if the walk will not visit them all, otherwise during the walk.
 */
#ifndef KW_STORE_READ_H
#define KW_STORE_READ_H

#include "base/sorter.h"
#include "store/key_history.h"
#include "store/store.h"
#include "store/work.h"

typedef enum kw_read_phase {
  KW_READ_COUNTING_BY_LOG,   /* back from a newer revision, through the changes between */
  KW_READ_COUNTING_BY_INDEX, /* by visiting every key */
  KW_READ_WALKING,
  KW_READ_SORTING,
  KW_READ_TAKING,
  KW_READ_DONE
} kw_read_phase;

/* The caller may read op and revision, and at the end count and more. */
typedef struct kw_read {
  kw_range_op op;   /* its slices are borrowed, and must outlive the read */
  int64_t revision; /* at which the range is read */
  kw_read_phase phase;
  int64_t count;          /* of all keys in the range, regardless of limit and filters */
  bool more;              /* the limit has left out kvs */
  bool counts_on_the_way; /* the walk computes the count */
  int64_t found;          /* keys that the walk has found and the filters have passed */
  int64_t n;              /* kvs of all pages so far */
  kw_blob *last;          /* the last visited key, and a zero byte; NULL: none yet */
  kw_revision next;       /* the next record of a count by the log */
  int64_t counted_from;   /* the revision from which the log is counted back */
  uint64_t rewrites;      /* of the store, when the read or that count began */
  int64_t visited;        /* records that this count has visited */
  int64_t visits_max;     /* after this many, the index is counted instead */
  kw_sorter sorter;
} kw_read;

/* Begins a plain range, at the requested revision or at the newest visible one. Checks the op; the arena gives the
 * memory that the check needs. Returns KW_OK, an error of kw_check_op, KW_ERR_FUTURE_REVISION or KW_ERR_COMPACTED.
 * After an error nothing was begun. */
int kw_read_begin(kw_store *store, kw_read *read, const kw_range_op *op, kw_arena *arena);

/* Continues a range that kw_read_begin has begun, until it is done or the work is used up. *page gets the next kvs,
 * perhaps none; its array is in the arena, and its records are borrowed like those of kw_store_apply. Returns KW_OK if
 * the range is done, or KW_UNFINISHED. Returns KW_ERR_COMPACTED if the revision was compacted, or a replica rewritten,
 * between two steps, KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT if a record cannot be read: then the read can only be
 * dropped. */
int kw_read_step(kw_store *store, kw_read *read, kw_arena *arena, kw_work *work, kw_records *page);

/* Frees the memory of a read. An all-zero read may be dropped, too. */
void kw_read_drop(kw_read *read);

/* Returns the memory that a read keeps between its steps, without its struct. */
size_t kw_read_held(const kw_read *read);

/* True if the op leaves out keys by their revisions. */
bool kw_read_is_filtered(const kw_range_op *op);

/* {====== For the files of this folder ====== */

/* Like kw_read_begin, for an op that was checked. `current` is the newest revision that may be seen. */
int kw_read_begin_at(kw_store *store, kw_read *read, const kw_range_op *op, int64_t current);

/* Like kw_read_step, for a read inside a transaction: records that were borrowed earlier stay valid. A record that
 * cannot be read is empty in the page: the caller must check kw_log_failure. */
int kw_read_step_inside(kw_store *store, kw_read *read, kw_arena *arena, kw_work *work,
                        kw_records *page);

/* Answers a range; `current` is the newest revision that may be seen. Returns KW_OK, KW_UNFINISHED if the work is too
 * little for a range of several keys, KW_ERR_FUTURE_REVISION, KW_ERR_COMPACTED or KW_ERR_NO_MEMORY. A record that
 * cannot be read is empty in the reply: the caller must check kw_log_failure. */
int kw_read_range(kw_store *store, const kw_range_op *op, int64_t current, kw_work *work,
                  kw_arena *arena, kw_reply *reply);

/* Returns KW_OK if `rev` can be read when `current` is the newest revision, else KW_ERR_FUTURE_REVISION or
 * KW_ERR_COMPACTED. */
int kw_read_check(const kw_store *store, int64_t rev, int64_t current);

/* Called for a read that continues at `rev`: if that is an older revision, a replica keeps more history for a while. */
void kw_read_want(kw_store *store, int64_t rev);

/* Returns the newest record of a key, or NULL if the key does not exist. `history` may be NULL. The record is
 * borrowed, and may be empty, see kw_log_read. */
const kw_blob *kw_read_newest(const kw_store *store, const kw_key_history *history);

/* }====== */

#endif
