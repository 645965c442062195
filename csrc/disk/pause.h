/* SPDX-License-Identifier: MIT
 *
 * pause: a short wait before a commit group is submitted, if flushes are slow.
 *
 * A writer that waits for its answer often writes again as soon as it has the answer. Without a pause, the writers of
 * one group are always too late for the next group, which was submitted before they were answered: the writers split
 * into two halves, which take turns, and each flush makes only half of the possible writes durable. So after a slow
 * flush of several writes the store pauses until all these writers have written again, but at most for a small part of
 * the time of a flush. If they do not write again, the store does not pause for some groups.
 *
 * The bell rings when the time of a pause has passed, and the next flush of the store then submits the group. A store
 * without a bell does not pause.
 *
 * Times are those of kw_clock_ns. This file does not use the store: writes are only known by rising numbers.
 */
#ifndef KW_DISK_PAUSE_H
#define KW_DISK_PAUSE_H

#include "base/common.h"

/* A flush that takes this many nanoseconds is slow. */
#define KW_SLOW_FLUSH_NS KW_LIMIT(500000, 1)

/* All zero: no pause yet. */
typedef struct kw_pause {
  int64_t until;    /* 0: there is no pause */
  int64_t from;     /* number of the newest write when the pause began */
  int64_t expected; /* number of the write that ends the pause */
  bool has_bell;    /* a group waits for the end of the pause, at which the bell rings */
  int skipped; /* number of groups without a pause after the last pause, which gained little; else 0 */
  int left;    /* how many of these groups have not been submitted yet */
} kw_pause;

/* Called when a group of `writes` writes is durable, before its writers are answered. A flush takes `flush_ns`, and the
 * newest write has the number `newest`. Begins a pause, if it is worthwhile. */
void kw_pause_begin(kw_pause *pause, int64_t now, int64_t flush_ns, int64_t writes, int64_t newest);

/* True while the pause lasts. The newest write has the number `newest`. */
bool kw_pause_lasts(kw_pause *pause, int64_t now, int64_t newest);

/* Ends the pause, if there is one. */
static inline void kw_pause_end(kw_pause *pause) {
  pause->until = 0;
}

#endif
