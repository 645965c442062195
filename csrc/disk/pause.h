/* SPDX-License-Identifier: MIT
 *
 * pause: a short wait before a commit group is submitted, where flushes take long.
 *
 * Writers who wait for their answers write again when they have got them. Without a pause, those of one group always
 * come too late for the next one, which was submitted meanwhile: the writers fall into two halves, which take turns,
 * and each flush makes half as many writes durable as could be. So after a slow flush of several writes the store
 * pauses, until all writers are back, but for a small part of the time of a flush at most. If they do not come back,
 * the store does not pause for a while.
 *
 * The bell rings when the time of a pause is over, and the next flush of the store then submits the group. A store
 * without a bell does not pause.
 *
 * Times are those of kw_clock_ns. The file knows no store: a write is whatever is counted by a rising number.
 */
#ifndef KW_DISK_PAUSE_H
#define KW_DISK_PAUSE_H

#include "base/common.h"

/* A flush that takes as many nanoseconds is slow. */
#define KW_SLOW_FLUSH_NS KW_LIMIT(500000, 1)

/* All zero: there was no pause yet. */
typedef struct kw_pause {
  int64_t until;    /* 0: there is no pause */
  int64_t from;     /* number of the newest write when the pause began */
  int64_t expected; /* number of the write that ends the pause */
  bool is_holding;  /* a group back */
  int skipped;      /* groups without a pause after the last one, since it brought little */
  int left;         /* groups still to go without a pause */
} kw_pause;

/* Called when a group of `writes` writes is durable, before its writers are answered. A flush takes `flush_ns`, and the
 * newest write has the number `newest`. Begins a pause, if that is worth while. */
void kw_pause_begin(kw_pause *pause, int64_t now, int64_t flush_ns, int64_t writes, int64_t newest);

/* True while the pause lasts. The newest write has the number `newest`. */
bool kw_pause_lasts(kw_pause *pause, int64_t now, int64_t newest);

/* Ends the pause, if there is one. */
static inline void kw_pause_end(kw_pause *pause) {
  pause->until = 0;
}

#endif
