/* SPDX-License-Identifier: MIT */
#include "store/retention.c"

#include "probe/checks.h"

const char *kw_retention_check(const kw_store *store) {
  const kw_retention *self = &store->retention;
  if (!store->options.replica || self->floor.revision == 0 || store->is_merging) return NULL;
  kw_retention_point point = self->floor;
  if (point.revision != store->compact_revision)
    return "the history does not begin where it should";
  while (advance(store, &point)) continue;
  if (point.bytes != self->newest.bytes || point.revisions != self->newest.revisions)
    return "the sums of the history are wrong";
  return NULL;
}
