/* SPDX-License-Identifier: MIT
 *
 * clock: the clocks of the system.
 */
#ifndef KW_BASE_CLOCK_H
#define KW_BASE_CLOCK_H

#pragma GCC visibility push(default)
#include <time.h>
#pragma GCC visibility pop

#include "base/common.h"

/* Returns nanoseconds since some time in the past. */
static inline int64_t kw_clock_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Returns seconds since 1970. */
static inline int64_t kw_clock_date(void) {
  return (int64_t)time(NULL);
}

#endif
