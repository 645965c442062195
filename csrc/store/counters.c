/* SPDX-License-Identifier: MIT */
#include "store/counters.h"

#define MS INT64_C(1000000) /* nanoseconds */

/* The buckets are etcd's. */
static const kw_buckets seconds = {
    .unit = 1, .n = 24, .bounds = {1,       2,       4,       8,       16,      32,
                                   64,      128,     256,     512,     1024,    2048,
                                   4096,    8192,    16384,   32768,   1 << 16, 1 << 17,
                                   1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23}};

static const kw_buckets pauses = {.unit = 1e-6,
                                  .n = 13,
                                  .bounds = {MS, 2 * MS, 4 * MS, 8 * MS, 16 * MS, 32 * MS, 64 * MS,
                                             128 * MS, 256 * MS, 512 * MS, 1024 * MS, 2048 * MS,
                                             4096 * MS}};

static const kw_buckets compactions = {
    .unit = 1e-6,
    .n = 14,
    .bounds = {100 * MS, 200 * MS, 400 * MS, 800 * MS, 1600 * MS, 3200 * MS, 6400 * MS, 12800 * MS,
               25600 * MS, 51200 * MS, 102400 * MS, 204800 * MS, 409600 * MS, 819200 * MS}};

kw_store_counters kw_store_counters_new(void) {
  return (kw_store_counters){.lease_ttl.buckets = &seconds,
                             .compaction.buckets = &compactions,
                             .compaction_pause.buckets = &pauses};
}
