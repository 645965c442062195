/* SPDX-License-Identifier: MIT */
#include "watch/outlet.c"

#include "probe/checks.h"

void kw_outlet_add_totals(const kw_outlet *outlet, kw_outlet_totals *totals) {
  totals->bytes += outlet->bytes - outlet->n * KW_OUTLET_ITEM_BYTES;
  for (size_t i = 0; i < outlet->n; i++) totals->added += item_at(outlet, i)->n;
}

const char *kw_outlet_check(const kw_outlet *outlet) {
  size_t bytes = 0, progress_all = 0;
  for (size_t i = 0; i < outlet->n; i++) {
    bytes += item_at(outlet, i)->charge;
    progress_all += item_at(outlet, i)->watcher == NULL;
  }
  if (bytes != outlet->bytes) return "the bytes of an outlet are wrong";
  return progress_all == outlet->progress_all ? NULL : "the progress of an outlet is wrong";
}
