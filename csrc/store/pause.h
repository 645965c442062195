/* SPDX-License-Identifier: MIT
 *
 * pause: a short wait before a commit group is submitted, where flushes take long.
 *
 * Writers who wait for their answers write again when they have got them. Without a pause, those of one group always
 * come too late for the next one, which was submitted meanwhile: the writers fall into two halves, which take turns,
 * and each flush makes half as many writes durable as could be. So after a slow flush of several writes the store
 * pauses, until all writers are back, but for a small part of the time of a flush at most. If they do not come back,
 * it does not pause for a while.
 *
 * Times are those of kw_clock_ns. The file knows no store: a write is whatever is counted by a rising number.
 */
#ifndef KW_STORE_PAUSE_H
#define KW_STORE_PAUSE_H

#include "base/common.h"

/* All zero: there was no pause yet. */
typedef struct kw_pause {
  int64_t until;    /* 0: there is no pause */
  int64_t from;     /* number of the newest write when the pause began */
  int64_t expected; /* number of the write that ends the pause */
  int skipped;      /* groups without a pause after the last one, since it brought little */
  int left;         /* of them */
} kw_pause;

/* Called when a group of `writes` writes is durable, after a flush of `flush_ns`, before its writers are answered. The
 * newest write has the number `newest`. Returns the length of the pause that begins; 0: there is none. */
int64_t kw_pause_begin(kw_pause *pause, int64_t now, int64_t flush_ns, int64_t writes,
                       int64_t newest);

/* True while the pause lasts. The newest write has the number `newest`. */
bool kw_pause_lasts(kw_pause *pause, int64_t now, int64_t newest);

/* Ends the pause, if there is one. */
static inline void kw_pause_end(kw_pause *pause) {
  pause->until = 0;
}

#endif
