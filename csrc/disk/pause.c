/* SPDX-License-Identifier: MIT */
#include "disk/pause.h"

#define PART 6          /* a pause takes one sixth of the time of a flush */
#define MOST_SKIPPED 64 /* largest number of groups without a pause after one that gained little */

/* The times are in nanoseconds. */
#define SHORTEST KW_LIMIT(0, 20000000)
#define LONGEST KW_LIMIT(1000000, 20000000)
#define SEVERAL KW_LIMIT(8, 2) /* a group with fewer writes is followed by no pause */

static int64_t length_of(int64_t flush_ns) {
  int64_t ns = flush_ns / PART;
  if (ns < SHORTEST) ns = SHORTEST;
  return ns < LONGEST ? ns : LONGEST;
}

void kw_pause_begin(kw_pause *pause, int64_t now, int64_t flush_ns, int64_t writes,
                    int64_t newest) {
  kw_pause_end(pause);
  if (flush_ns < KW_SLOW_FLUSH_NS || writes < SEVERAL) return;
  if (pause->left > 0) {
    pause->left--;
    return;
  }
  pause->until = now + length_of(flush_ns);
  pause->from = newest;
  pause->expected = newest + writes;
  pause->has_bell = false;
}

/* After each pause that gains little, twice as many groups are submitted without a pause. */
static void learn(kw_pause *pause, int64_t newest) {
  bool is_little = newest - pause->from < (pause->expected - pause->from) / 2;
  int skipped = pause->skipped == 0 ? 1 : 2 * pause->skipped;
  pause->skipped = !is_little ? 0 : skipped < MOST_SKIPPED ? skipped : MOST_SKIPPED;
  pause->left = pause->skipped;
}

bool kw_pause_lasts(kw_pause *pause, int64_t now, int64_t newest) {
  if (pause->until == 0) return false;
  if (newest < pause->expected && now < pause->until) return true;
  learn(pause, newest);
  kw_pause_end(pause);
  return false;
}
