/* SPDX-License-Identifier: MIT
 *
 * histogram: counts values by size, for metrics. A histogram is a plain struct without memory of its own: the measured
 * object embeds it, and a reader copies it.
 *
 * A bucket counts the values that are above the previous bound, and at most its own; one more bucket counts the values
 * above the last bound. {.buckets = &buckets} is an empty histogram.
 */
#ifndef KW_BASE_HISTOGRAM_H
#define KW_BASE_HISTOGRAM_H

#include "base/common.h"

#define KW_MAX_BUCKETS 24

/* The bounds of a histogram. */
typedef struct kw_buckets {
  double unit; /* factor from values to the unit of the metric: 1e-9 from nanoseconds to seconds */
  size_t n;
  int64_t bounds[KW_MAX_BUCKETS]; /* in rising order */
} kw_buckets;

/* Nanoseconds, shown as seconds: 1 ms, and each bound is twice the previous one, up to 8.192 s. */
extern const kw_buckets kw_buckets_ns;

typedef struct kw_histogram {
  const kw_buckets *buckets;
  double sum; /* of all values */
  uint64_t counts[KW_MAX_BUCKETS + 1];
} kw_histogram;

/* Counts a value. */
void kw_histogram_add(kw_histogram *histogram, int64_t value);

#endif
