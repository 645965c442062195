/* SPDX-License-Identifier: MIT
 *
 * retention: how much of its history a replica keeps. For the files of this folder only.
 *
 * The history is bounded by bytes, by revisions and by age, the options of the store. History beyond a bound is
 * compacted: the compacted revision advances, and steps of compaction remove the records. The bound history_idle_bytes
 * applies while no reader needs the past. A reader that needs the past is a watcher that lags or begins in the past, or
 * a read at an older revision: it suspends that bound until a number of bytes of events have been added.
 *
 * A point is a revision with the sums of all events up to it, so that the size of the history is one subtraction. Ages
 * are measured by marks: a mark is a point and the time at which the replica reached it. Since there are few marks,
 * history is kept a little longer than the allowed age, but never shorter.
 */
#ifndef KW_STORE_RETENTION_H
#define KW_STORE_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KW_RETENTION_MARKS 16

typedef struct kw_store kw_store;

typedef struct kw_retention_point {
  int64_t revision;
  int64_t bytes;     /* of the records of all events up to this revision */
  int64_t revisions; /* number of revisions with events, up to this one */
} kw_retention_point;

typedef struct kw_retention_mark {
  kw_retention_point point;
  int64_t time;
} kw_retention_mark;

typedef struct kw_retention {
  kw_retention_point newest;
  kw_retention_point floor; /* its revision is the compacted one; the history is after it */
  kw_retention_mark marks[KW_RETENTION_MARKS]; /* the oldest first */
  size_t n_marks;
  int64_t unvisited; /* events that were added since the last step of compaction */
  int64_t wanted_to; /* newest.bytes up to which history_idle_bytes is suspended */
} kw_retention;

/* Starts without history, at a revision. */
void kw_retention_reset(kw_store *store, int64_t rev);

/* Adds `n` committed events of `revisions` revisions, of which `rev` is the last. Compacts history beyond the bounds of
 * bytes and revisions, and regularly steps the compaction. */
void kw_retention_add(kw_store *store, int64_t rev, int64_t revisions, int64_t bytes, size_t n);

/* Compacts history up to a point. Does nothing if more is compacted already. */
void kw_retention_forget(kw_store *store, const kw_retention_point *point);

/* Called for a reader of the past: suspends history_idle_bytes until `bytes` more bytes of events were added. */
void kw_retention_want(kw_store *store, int64_t bytes);

/* Returns when the next step is due: INT64_MIN if it is due now, KW_NEVER if nothing has to be done. */
int64_t kw_retention_deadline(const kw_store *store);

/* Does what is due: makes a mark; compacts history that is older than the option history_age_ms allows, or that
 * kw_retention_add has left beyond the bounds. */
void kw_retention_step(kw_store *store, int64_t now);

#endif
