/* SPDX-License-Identifier: MIT */
#include "base/histogram.h"

#define MS INT64_C(1000000)

const kw_buckets kw_buckets_ns = {.unit = 1e-9,
                                  .n = 14,
                                  .bounds = {MS, 2 * MS, 4 * MS, 8 * MS, 16 * MS, 32 * MS, 64 * MS,
                                             128 * MS, 256 * MS, 512 * MS, 1024 * MS, 2048 * MS,
                                             4096 * MS, 8192 * MS}};

void kw_histogram_add(kw_histogram *histogram, int64_t value) {
  const kw_buckets *buckets = histogram->buckets;
  size_t i = 0;
  while (i < buckets->n && value > buckets->bounds[i]) i++;
  histogram->counts[i]++;
  histogram->sum += (double)value;
}
