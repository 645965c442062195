/* SPDX-License-Identifier: MIT */
#include "watch/walk.h"

#include "base/mem.h"
#include "codec/keyvalue.h"

#define KEEP_EVENTS 4096 /* capacity that is kept from one walk to the next */

/* Combinations of no_put, no_delete and prev_kv. */
#define VARIANTS 8

struct kw_pending {
  kw_watched *watched;
  kw_pending *next;
  kw_pending **prev; /* the pointer that points to this one */
  uint32_t *at;      /* positions in walk->events */
  uint32_t n;
  uint32_t cap;
  size_t bytes; /* of the records */
  bool wants_previous;
  kw_batch
      *variants[VARIANTS]; /* all events of the range for each combination, or NULL: not made yet */
};

static unsigned variant_of(const kw_watcher *watcher) {
  return (unsigned)watcher->no_put | (unsigned)watcher->no_delete << 1 |
         (unsigned)watcher->prev_kv << 2;
}

static bool wants_previous(const kw_watched *watched) {
  const kw_watcher *watcher = watched->first;
  while (watcher != NULL && !watcher->prev_kv) watcher = watcher->next;
  return watcher != NULL;
}

/* Returns the kw_pending of a watched range, which is made on first use. */
static kw_pending *pending_of(kw_walk *walk, kw_watched *watched) {
  if (watched->pending != NULL) return watched->pending;
  kw_pending *pending = kw_arena_alloc(&walk->arena, sizeof *pending);
  if (pending == NULL) return NULL;
  pending->watched = watched;
  pending->wants_previous = walk->counts_previous && wants_previous(watched);
  pending->next = walk->pending;
  pending->prev = &walk->pending;
  if (walk->pending != NULL) walk->pending->prev = &pending->next;
  walk->pending = pending;
  watched->pending = pending;
  return pending;
}

static bool note(kw_walk *walk, kw_pending *pending, uint32_t event) {
  if (pending->n == pending->cap) {
    uint32_t cap = pending->cap == 0 ? 4 : pending->cap * 2;
    uint32_t *at = kw_arena_array(&walk->arena, cap, sizeof *at);
    if (at == NULL) return false;
    if (pending->n > 0) memcpy(at, pending->at, pending->n * sizeof *at);
    pending->at = at;
    pending->cap = cap;
  }
  pending->at[pending->n++] = event;
  const kw_event *noted = &walk->events[event];
  pending->bytes += noted->record->len;
  if (pending->wants_previous)
    pending->bytes +=
        kw_store_previous_size(walk->store, kw_keyvalue_key(noted->record), noted->revision);
  if (pending->bytes > walk->most_bytes) walk->most_bytes = pending->bytes;
  walk->matches++;
  return true;
}

bool kw_walk_add(kw_walk *walk, kw_watch_group *group, const kw_log_entry *entry) {
  kw_match match;
  if (!kw_watch_group_match(group, kw_keyvalue_key_in(entry->bytes), &match)) return false;
  if (match.n == 0) return true;
  if (walk->n == UINT32_MAX) return false;
  if (!kw_reserve(&walk->events, &walk->cap, walk->n + 1, sizeof *walk->events)) return false;
  kw_blob *record = kw_log_keep(entry);
  if (record == NULL) return false;
  walk->events[walk->n++] =
      (kw_event){.revision = entry->rev.main, .is_delete = entry->tombstone, .record = record};
  for (size_t i = 0; i < match.n; i++) {
    kw_pending *pending = pending_of(walk, match.watched[i]);
    if (pending == NULL || !note(walk, pending, (uint32_t)walk->n - 1)) return false;
  }
  return true;
}

/* Returns the record that the key had before an event, borrowed. NULL: there was none, or it has been compacted. An
 * empty record: it could not be read. */
static kw_blob *previous_of(const kw_walk *walk, const kw_event *event) {
  kw_kv kv = kw_keyvalue_of(event->record);
  if (!event->is_delete && kv.create_revision == kv.mod_revision) return NULL;
  return kw_store_previous(walk->store, kv.key, event->revision);
}

static bool wants(const kw_watcher *watcher, const kw_event *event) {
  return event->is_delete ? !watcher->no_delete : !watcher->no_put;
}

/* Fills a batch with the events of a range that a watcher wants. Returns false if the record before one of them could
 * not be read. */
static bool fill(const kw_walk *walk, const kw_pending *pending, const kw_watcher *watcher,
                 kw_batch *batch) {
  for (uint32_t i = 0; i < pending->n; i++) {
    kw_event event = walk->events[pending->at[i]];
    if (!wants(watcher, &event)) continue;
    if (watcher->prev_kv) event.prev = previous_of(walk, &event);
    if (event.prev != NULL && event.prev->len == 0) return false;
    kw_batch_add(batch, &event);
  }
  return true;
}

/* Returns the batch of all events of a range that a watcher wants, also of those before its next_rev. The batch may be
 * empty, and belongs to `pending`. Or returns NULL, with *why set to KW_NO_MEMORY or KW_UNREADABLE. */
static kw_batch *batch_for(const kw_walk *walk, kw_pending *pending, const kw_watcher *watcher,
                           kw_told *why) {
  kw_batch **shared = &pending->variants[variant_of(watcher)];
  *why = KW_NO_MEMORY;
  if (*shared != NULL || (*shared = kw_batch_new(pending->n)) == NULL) return *shared;
  if (fill(walk, pending, watcher, *shared)) return *shared;
  if (kw_store_read_failure(walk->store) == KW_ERR_CORRUPT) *why = KW_UNREADABLE;
  kw_batch_release(*shared);
  return *shared = NULL;
}

/* Returns the position of the first event of a batch that is not before `rev`, or batch->n. */
static uint32_t first_from(const kw_batch *batch, int64_t rev) {
  uint32_t low = 0, high = batch->n;
  if (high == 0 || batch->events[0].revision >= rev) return 0;
  while (low < high) {
    uint32_t mid = low + (high - low) / 2;
    if (batch->events[mid].revision < rev) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

static int64_t last_revision(const kw_walk *walk, const kw_pending *pending) {
  return walk->events[pending->at[pending->n - 1]].revision;
}

/* Raises the next_rev of a watcher that could not be told to the first event that the walk has for its range. */
static void stay(const kw_walk *walk, const kw_pending *pending, kw_watcher *watcher) {
  int64_t first = walk->events[pending->at[0]].revision;
  if (watcher->next_rev < first) watcher->next_rev = first;
}

kw_told kw_walk_tell(kw_walk *walk, kw_watcher *watcher) {
  kw_pending *pending = watcher->watched->pending;
  if (pending == NULL || last_revision(walk, pending) < watcher->next_rev) return KW_UNTOLD;
  kw_told why;
  kw_batch *batch = batch_for(walk, pending, watcher, &why);
  if (batch == NULL) {
    stay(walk, pending, watcher);
    watcher->needs = KW_NEEDS_ALL;
    return why;
  }
  uint32_t from = first_from(batch, watcher->next_rev);
  if (from == batch->n) return KW_UNTOLD;
  kw_item item = {.kind = KW_ITEM_EVENTS,
                  .watcher = watcher,
                  .batch = kw_batch_retain(batch),
                  .from = from,
                  .revision = batch->events[batch->n - 1].revision};
  if (kw_outlet_offer(watcher->outlet, &item)) return KW_TOLD;
  kw_batch_release(batch);
  stay(walk, pending, watcher);
  return KW_REFUSED;
}

kw_watched *kw_walk_first(const kw_walk *walk) {
  return walk->pending == NULL ? NULL : walk->pending->watched;
}

void kw_walk_done(kw_walk *walk) {
  kw_walk_forget(walk, walk->pending->watched);
}

void kw_walk_forget(kw_walk *walk, kw_watched *watched) {
  kw_pending *pending = watched->pending;
  (void)walk;
  if (pending == NULL) return;
  *pending->prev = pending->next;
  if (pending->next != NULL) pending->next->prev = pending->prev;
  watched->pending = NULL;
  for (unsigned i = 0; i < VARIANTS; i++) {
    if (pending->variants[i] != NULL) kw_batch_release(pending->variants[i]);
  }
}

void kw_walk_reset(kw_walk *walk) {
  while (walk->pending != NULL) kw_walk_done(walk);
  for (size_t i = 0; i < walk->n; i++) kw_blob_release(walk->events[i].record);
  walk->n = walk->matches = walk->most_bytes = 0;
  kw_arena_reset(&walk->arena);
  if (walk->cap <= KEEP_EVENTS) return;
  kw_free(walk->events);
  walk->events = NULL;
  walk->cap = 0;
}

void kw_walk_drop(kw_walk *walk) {
  kw_free(walk->events);
  kw_arena_drop(&walk->arena);
}
