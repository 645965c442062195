/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>

extern uint64_t kw_snapshot_waits;
uint64_t kw_snapshot_waits;

#define pthread_join(thread, result)                                                               \
  (kw_snapshot_waits += !is_done(s), pthread_join(thread, result))
#include "store/snapshot.c"
