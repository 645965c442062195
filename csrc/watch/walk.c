/* SPDX-License-Identifier: MIT */
#include "watch/walk.h"

#include "base/mem.h"
#include "codec/event.h"
#include "codec/keyvalue.h"

#define KEEP_EVENTS 4096 /* capacity that is kept from one walk to the next */

/* The time for an event, and for a lookup of its previous record, counts as bytes of its revision. */
#define EVENT_BYTES 64
#define LOOKUP_BYTES 512

/* Combinations of no_put, no_delete and prev_kv. */
#define VARIANTS 8

/* Events of one type in a long revision. */
typedef struct sum {
  size_t n;
  size_t size;      /* encoded */
  size_t with_prev; /* encoded, with their previous records */
} sum;

struct kw_pending {
  kw_watched *watched;
  kw_pending *next;
  kw_pending **prev; /* the pointer that points to this one */
  uint32_t *at;      /* positions in walk->events */
  uint32_t n;
  uint32_t cap;
  size_t bytes;           /* of the records */
  int64_t revision;       /* of the last event that is kept */
  uint32_t n_of_revision; /* events of that revision */
  uint32_t first_sub;     /* of the first of them */
  size_t load;            /* bytes of that revision, with EVENT_BYTES and LOOKUP_BYTES */
  bool wants_previous;    /* a watcher wants previous records */
  int64_t long_revision;  /* is counted in `sums`, and is not in `at`; 0: no revision is long */
  int64_t compacted;      /* compacted revision of the store when that revision became long */
  bool is_prev_damaged;   /* a previous record of the long revision cannot be read */
  sum sums[2];            /* of the puts, of the deletes */
  kw_batch
      *variants[VARIANTS]; /* all events of the range for each combination, or NULL: not made yet */
  kw_batch *long_variants[VARIANTS]; /* the same of the long revision */
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
  pending->next = walk->pending;
  pending->prev = &walk->pending;
  if (walk->pending != NULL) walk->pending->prev = &pending->next;
  walk->pending = pending;
  watched->pending = pending;
  return pending;
}

/* True if an event can have a record before it: a put that creates its key has none. */
static bool has_previous(const kw_event *event) {
  kw_kv kv;
  if (event->is_delete) return true;
  kv = kw_keyvalue_of(event->record);
  return kv.create_revision != kv.mod_revision;
}

kw_blob *kw_walk_previous(const kw_store *store, const kw_event *event, int64_t compacted) {
  if (!has_previous(event)) return NULL;
  return kw_store_previous(store, kw_keyvalue_key(event->record), event->revision, compacted);
}

static size_t previous_size(kw_walk *walk, const kw_event *event) {
  walk->lookups++;
  if (!has_previous(event)) return 0;
  return kw_store_previous_size(walk->store, kw_keyvalue_key(event->record), event->revision,
                                walk->compacted);
}

/* Counts an event of the long revision. */
static void count(kw_walk *walk, kw_pending *pending, const kw_event *event) {
  sum *to = &pending->sums[event->is_delete];
  size_t size = kw_event_size(event);
  size_t prev = pending->wants_previous ? previous_size(walk, event) : 0;
  if (prev == KW_PREVIOUS_UNREADABLE) pending->is_prev_damaged = true;
  to->n++;
  to->size += size;
  to->with_prev += prev == 0 ? size : kw_event_size_with(event, prev);
}

/* Makes the last revision of a kw_pending long. */
static void become_long(kw_walk *walk, kw_pending *pending) {
  uint32_t n = pending->n - pending->n_of_revision;
  pending->long_revision = pending->revision;
  pending->compacted = walk->compacted;
  pending->wants_previous = wants_previous(pending->watched);
  walk->most_bytes = SIZE_MAX;
  for (uint32_t i = n; i < pending->n; i++) count(walk, pending, &walk->events[pending->at[i]]);
  pending->n = n;
}

/* Adds the bytes of an event's previous record to those of its kw_pending. A walk without counts_previous leaves out
 * the first event: most walks have only that one. */
static void add_previous(kw_walk *walk, kw_pending *pending, const kw_event *event) {
  if (pending->n == (walk->counts_previous ? 1 : 2))
    pending->wants_previous = wants_previous(pending->watched);
  if (!pending->wants_previous) return;
  size_t size = previous_size(walk, event);
  if (size == KW_PREVIOUS_UNREADABLE) size = 0;
  pending->bytes += size;
  pending->load += LOOKUP_BYTES + size;
}

/* Adds the event that was kept last to a kw_pending. */
static bool note(kw_walk *walk, kw_pending *pending, uint32_t sub) {
  uint32_t event = (uint32_t)walk->n - 1;
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
  if (noted->revision != pending->revision) {
    pending->load = pending->n_of_revision = 0;
    pending->revision = noted->revision;
    pending->first_sub = sub;
  }
  pending->n_of_revision++;
  pending->load += noted->record->len + EVENT_BYTES;
  add_previous(walk, pending, noted);
  if (pending->bytes > walk->most_bytes) walk->most_bytes = pending->bytes;
  walk->matches++;
  if (pending->load > walk->long_bytes && pending->n_of_revision > 1) become_long(walk, pending);
  return true;
}

/* Keeps the event of an entry. */
static bool keep(kw_walk *walk, const kw_log_entry *entry) {
  if (walk->n == UINT32_MAX) return false;
  if (!kw_reserve(&walk->events, &walk->cap, walk->n + 1, sizeof *walk->events)) return false;
  kw_blob *record = kw_log_keep(entry);
  if (record == NULL) return false;
  walk->events[walk->n++] =
      (kw_event){.revision = entry->rev.main, .is_delete = entry->tombstone, .record = record};
  return true;
}

/* If all matched ranges only count an event, the event is not kept. */
bool kw_walk_add(kw_walk *walk, kw_watch_group *group, const kw_log_entry *entry) {
  kw_match match;
  walk->lookups = 0;
  kw_slice key = kw_keyvalue_key_in(entry->bytes);
  if (!kw_watch_group_match(group, key, walk->most_matched, &match)) return false;
  walk->matched = match.n;
  walk->is_partial = match.is_partial;
  if (match.n == 0) return true;
  if (!keep(walk, entry)) return false;
  bool is_noted = false;
  for (size_t i = 0; i < match.n; i++) {
    kw_pending *pending = pending_of(walk, match.watched[i]);
    if (pending == NULL) return false;
    if (pending->long_revision != 0) {
      count(walk, pending, &walk->events[walk->n - 1]);
      continue;
    }
    is_noted = true;
    if (!note(walk, pending, entry->rev.sub)) return false;
  }
  if (!is_noted) kw_blob_release(walk->events[--walk->n].record);
  return true;
}

/* Fills a batch with the events of a range that a watcher wants. Returns false if the record before one of them could
 * not be read. */
static bool fill(const kw_walk *walk, const kw_pending *pending, const kw_watcher *watcher,
                 kw_batch *batch) {
  for (uint32_t i = 0; i < pending->n; i++) {
    kw_event event = walk->events[pending->at[i]];
    if (!kw_walk_is_wanted(watcher, event.is_delete)) continue;
    if (watcher->prev_kv) event.prev = kw_walk_previous(walk->store, &event, walk->compacted);
    if (event.prev != NULL && event.prev->len == 0) return false;
    kw_batch_add(batch, &event);
  }
  return true;
}

/* Returns the batch of all events of a range that a watcher wants, also of those before its next_rev. The batch may be
 * empty, and belongs to `pending`. Or returns NULL, with *why set to KW_NO_MEMORY or KW_UNREADABLE. */
static kw_batch *batch_for(const kw_walk *walk, kw_pending *pending, const kw_watcher *watcher,
                           kw_delivered *why) {
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

/* Returns the long batch that a watcher shares; it may have no events. Or returns NULL, with *why set. */
static kw_batch *long_batch_for(kw_pending *pending, const kw_watcher *watcher, kw_delivered *why) {
  kw_batch **shared = &pending->long_variants[variant_of(watcher)];
  *why = watcher->prev_kv && pending->is_prev_damaged ? KW_UNREADABLE : KW_NO_MEMORY;
  if (*why == KW_UNREADABLE) return NULL;
  if (*shared != NULL || (*shared = kw_batch_new(0)) == NULL) return *shared;
  (*shared)->long_revision = pending->long_revision;
  (*shared)->long_first = pending->first_sub;
  (*shared)->compacted = pending->compacted;
  for (int type = 0; type < 2; type++) {
    if (!kw_walk_is_wanted(watcher, type == 1)) continue;
    const sum *of = &pending->sums[type];
    (*shared)->long_n += of->n;
    (*shared)->long_size += watcher->prev_kv ? of->with_prev : of->size;
  }
  return *shared;
}

/* Raises the next_rev of a watcher that could not be served. Returns `why`. */
static kw_delivered stay(kw_watcher *watcher, int64_t rev, kw_delivered why) {
  if (watcher->next_rev < rev) watcher->next_rev = rev;
  if (why != KW_REFUSED) watcher->needs = KW_NEEDS_ALL;
  return why;
}

static kw_delivered offer(kw_watcher *watcher, kw_batch *batch, uint32_t from, uint32_t n,
                          int64_t revision) {
  kw_item item = {.kind = KW_ITEM_EVENTS,
                  .watcher = watcher,
                  .batch = kw_batch_retain(batch),
                  .from = from,
                  .n = n,
                  .revision = revision};
  if (kw_outlet_offer(watcher->outlet, &item)) return KW_DELIVERED;
  kw_batch_release(batch);
  return KW_REFUSED;
}

/* Delivers the kept events of the watcher's range. */
static kw_delivered deliver_kept(kw_walk *walk, kw_pending *pending, kw_watcher *watcher) {
  kw_delivered outcome = KW_NO_EVENTS;
  const uint32_t *at = pending->at;
  if (pending->n == 0 || walk->events[at[pending->n - 1]].revision < watcher->next_rev)
    return outcome;
  kw_batch *batch = batch_for(walk, pending, watcher, &outcome);
  if (batch != NULL) {
    uint32_t from = first_from(batch, watcher->next_rev);
    if (from == batch->n) return KW_NO_EVENTS;
    outcome = offer(watcher, batch, from, batch->n - from, batch->events[batch->n - 1].revision);
  }
  return outcome == KW_DELIVERED ? outcome : stay(watcher, walk->events[at[0]].revision, outcome);
}

/* Delivers the long revision of the watcher's range. */
static kw_delivered deliver_long(kw_pending *pending, kw_watcher *watcher) {
  kw_delivered outcome;
  if (pending->long_revision < watcher->next_rev) return KW_NO_EVENTS;
  kw_batch *batch = long_batch_for(pending, watcher, &outcome);
  if (batch != NULL && batch->long_n == 0) return KW_NO_EVENTS;
  if (batch != NULL)
    outcome = offer(watcher, batch, 0, (uint32_t)batch->long_n, batch->long_revision);
  return outcome == KW_DELIVERED ? outcome : stay(watcher, pending->long_revision, outcome);
}

kw_delivered kw_walk_deliver(kw_walk *walk, kw_watcher *watcher) {
  kw_pending *pending = watcher->watched->pending;
  if (pending == NULL) return KW_NO_EVENTS;
  kw_delivered outcome = deliver_kept(walk, pending, watcher);
  if (pending->long_revision == 0 || (outcome != KW_DELIVERED && outcome != KW_NO_EVENTS))
    return outcome;
  kw_delivered of_long = deliver_long(pending, watcher);
  return of_long == KW_NO_EVENTS ? outcome : of_long;
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
    if (pending->long_variants[i] != NULL) kw_batch_release(pending->long_variants[i]);
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
