/* SPDX-License-Identifier: MIT
 *
 * reach: how often the inputs of a target have reached what the target is for. The counts are printed at exit; fuzz/run
 * fails a target with a count of 0: its corpus does not lead there any more.
 */
#ifndef KW_FUZZ_REACH_H
#define KW_FUZZ_REACH_H

#include <stdint.h>

typedef struct reach {
  const char *what; /* NULL: the end of a list */
  uint64_t n;
} reach;

/* Has a list printed at exit. A process has one list. */
void reach_report(const reach *list);

#endif
