/* SPDX-License-Identifier: MIT */
#include "store/retention.h"

#include <string.h>

#include "store/compaction.h"

#define FORGET_AT_ONCE 5000 /* revisions */

void kw_retention_reset(kw_store *store, int64_t rev) {
  store->retention = (kw_retention){.newest = {.revision = rev}, .floor = {.revision = rev}};
}

void kw_retention_forget(kw_store *store, const kw_retention_point *point) {
  kw_retention *self = &store->retention;
  if (point->revision <= self->floor.revision) return;
  self->floor = *point;
  kw_compaction_start(store, point->revision);
}

/* {====== Bytes and revisions ====== */

void kw_retention_want(kw_store *store, int64_t bytes) {
  kw_retention *self = &store->retention;
  int64_t to = bytes > INT64_MAX - self->newest.bytes ? INT64_MAX : self->newest.bytes + bytes;
  if (to > self->wanted_to) self->wanted_to = to;
}

static int64_t bytes_bound(const kw_store *store) {
  const kw_store_options *options = &store->options;
  bool is_idle = store->retention.newest.bytes > store->retention.wanted_to;
  bool is_less = is_idle && options->history_idle_bytes < options->history_bytes;
  return is_less ? options->history_idle_bytes : options->history_bytes;
}

static bool is_too_much(const kw_store *store, const kw_retention_point *floor) {
  const kw_retention_point *newest = &store->retention.newest;
  return newest->bytes - floor->bytes > bytes_bound(store) ||
         newest->revisions - floor->revisions > store->options.history_revisions;
}

/* Moves a point past the next revision that has events. Returns false if there is none. */
static bool advance(const kw_store *store, kw_retention_point *point) {
  kw_log_cursor cursor = kw_log_seek(store->log, (kw_revision){.main = point->revision + 1});
  kw_log_entry entry;
  int64_t rev = 0;
  while (kw_log_next(store->log, &cursor, &entry) && (rev == 0 || entry.rev.main == rev)) {
    rev = entry.rev.main;
    point->bytes += (int64_t)kw_log_cost(entry.bytes.len);
  }
  if (rev == 0) return false;
  point->revision = rev;
  point->revisions++;
  return true;
}

/* A compaction visits each event once, and a delete twice. A step visits more events than were added since the previous
 * step, so a compaction keeps up with any feed. */
static void compact(kw_store *store, size_t n) {
  kw_retention *self = &store->retention;
  self->unvisited += (int64_t)n;
  if (2 * self->unvisited < store->options.step_records) return;
  self->unvisited = 0;
  if (kw_compaction_deadline(store) <= store->now) kw_compaction_step(store);
}

/* Raises the floor, by a bounded number of revisions. */
static void raise_floor(kw_store *store) {
  kw_retention_point floor = store->retention.floor;
  for (int n = 0; n < FORGET_AT_ONCE && is_too_much(store, &floor); n++) {
    if (!advance(store, &floor)) break;
  }
  kw_retention_forget(store, &floor);
}

void kw_retention_add(kw_store *store, int64_t rev, int64_t revisions, int64_t bytes, size_t n) {
  kw_retention *self = &store->retention;
  self->newest.revision = rev;
  self->newest.bytes += bytes;
  self->newest.revisions += revisions;
  raise_floor(store);
  compact(store, n);
}

/* }====== */

/* {====== Age ====== */

/* Returns the time between marks, such that there is space for all marks of the allowed age. */
static int64_t mark_interval(const kw_store *store) {
  return store->options.history_age_ms / (KW_RETENTION_MARKS - 2) + 1;
}

/* Returns when the next mark is due. */
static int64_t mark_time(const kw_store *store) {
  const kw_retention *self = &store->retention;
  size_t n = self->n_marks;
  int64_t marked = self->floor.revision;
  if (n > 0 && self->marks[n - 1].point.revision > marked)
    marked = self->marks[n - 1].point.revision;
  if (self->newest.revision <= marked) return KW_NEVER;
  return n == 0 ? INT64_MIN : self->marks[n - 1].time + mark_interval(store);
}

int64_t kw_retention_deadline(const kw_store *store) {
  const kw_retention *self = &store->retention;
  if (!store->options.replica) return KW_NEVER;
  if (is_too_much(store, &self->floor)) return INT64_MIN;
  if (store->options.history_age_ms == KW_NEVER) return KW_NEVER;
  int64_t expiry =
      self->n_marks == 0 ? KW_NEVER : self->marks[0].time + store->options.history_age_ms;
  int64_t next = mark_time(store);
  return next < expiry ? next : expiry;
}

void kw_retention_step(kw_store *store, int64_t now) {
  kw_retention *self = &store->retention;
  size_t old = 0;
  if (kw_retention_deadline(store) > now) return;
  raise_floor(store);
  if (store->options.history_age_ms == KW_NEVER) return;
  while (old < self->n_marks && self->marks[old].time + store->options.history_age_ms <= now)
    kw_retention_forget(store, &self->marks[old++].point);
  self->n_marks -= old;
  memmove(self->marks, self->marks + old, self->n_marks * sizeof *self->marks);
  if (mark_time(store) > now || self->n_marks == KW_RETENTION_MARKS) return;
  self->marks[self->n_marks++] = (kw_retention_mark){.point = self->newest, .time = now};
}

/* }====== */
