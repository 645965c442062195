/* SPDX-License-Identifier: MIT */
#include "reach.h"

#include <stdio.h>
#include <stdlib.h>

static const reach *reported;

static void report(void) {
  fprintf(stderr, "reached:");
  for (const reach *at = reported; at->what != NULL; at++)
    fprintf(stderr, "%s %llu %s", at == reported ? "" : ",", (unsigned long long)at->n, at->what);
  fprintf(stderr, "\n");
}

void reach_report(const reach *list) {
  reported = list;
  if (atexit(report) != 0) abort();
}
