/* SPDX-License-Identifier: MIT */
#include "watch/walk.h"

#include "base/mem.h"
#include "codec/keyvalue.h"

#define KEEP_EVENTS 4096 /* room that is kept from one walk to the next */

/* What a watcher may want of a slot: 3 bits. */
#define VARIANTS 8

struct kw_walk_watched {
  kw_watched *slot;
  kw_walk_watched *next;
  uint32_t *at; /* which events */
  uint32_t n;
  uint32_t cap;
  size_t bytes;
  kw_batch *variants[VARIANTS]; /* all of them, as those want it who stand before the first */
};

static unsigned variant_of(const kw_watcher *watcher) {
  return (unsigned)watcher->no_put | (unsigned)watcher->no_delete << 1 |
         (unsigned)watcher->prev_kv << 2;
}

static kw_walk_watched *slot_of(kw_walk *walk, kw_watched *slot) {
  if (slot->pending != NULL) return slot->pending;
  kw_walk_watched *mine = kw_arena_alloc(&walk->arena, sizeof *mine);
  if (mine == NULL) return NULL;
  mine->slot = slot;
  mine->next = walk->slots;
  walk->slots = mine;
  slot->pending = mine;
  return mine;
}

static bool note(kw_walk *walk, kw_walk_watched *mine, uint32_t event) {
  if (mine->n == mine->cap) {
    uint32_t cap = mine->cap == 0 ? 4 : mine->cap * 2;
    uint32_t *at = kw_arena_array(&walk->arena, cap, sizeof *at);
    if (at == NULL) return false;
    if (mine->n > 0) memcpy(at, mine->at, mine->n * sizeof *at);
    mine->at = at;
    mine->cap = cap;
  }
  mine->at[mine->n++] = event;
  mine->bytes += walk->events[event].record->len;
  if (mine->bytes > walk->most_bytes) walk->most_bytes = mine->bytes;
  walk->matches++;
  return true;
}

bool kw_walk_add(kw_walk *walk, kw_watch_group *group, const kw_log_entry *entry) {
  kw_match match;
  if (!kw_watch_group_match(group, kw_keyvalue_key(entry->record), &match)) return false;
  if (match.n == 0) return true;
  if (walk->n == UINT32_MAX) return false;
  if (!kw_reserve(&walk->events, &walk->cap, walk->n + 1, sizeof *walk->events)) return false;
  walk->events[walk->n++] = (kw_event){
      .revision = entry->rev.main, .is_delete = entry->tombstone, .record = entry->record};
  for (size_t i = 0; i < match.n; i++) {
    kw_walk_watched *mine = slot_of(walk, match.slots[i]);
    if (mine == NULL || !note(walk, mine, (uint32_t)walk->n - 1)) return false;
  }
  return true;
}

/* A put that made the key has nothing before it. */
static kw_blob *previous_of(const kw_walk *walk, const kw_event *event) {
  kw_kv kv = kw_keyvalue_of(event->record);
  if (!event->is_delete && kv.create_revision == kv.mod_revision) return NULL;
  return kw_store_previous(walk->store, kv.key, event->revision);
}

static bool wants(const kw_watcher *watcher, const kw_event *event) {
  return event->is_delete ? !watcher->no_delete : !watcher->no_put;
}

/* Fills a batch with what a watcher wants of a slot. False if a record before one of the events could not be read. */
static bool fill(const kw_walk *walk, const kw_walk_watched *mine, const kw_watcher *watcher,
                 kw_batch *batch) {
  for (uint32_t i = 0; i < mine->n; i++) {
    kw_event event = walk->events[mine->at[i]];
    if (!wants(watcher, &event)) continue;
    if (watcher->prev_kv) event.prev = previous_of(walk, &event);
    if (event.prev != NULL && event.prev->len == 0) return false;
    kw_batch_add(batch, &event);
  }
  return true;
}

/* The batch of what a watcher wants of a slot, be it before its next_rev or not. It may be empty, and belongs to the
 * slot. Or NULL, and why: KW_NO_MEMORY, KW_UNREADABLE. */
static kw_batch *batch_for(const kw_walk *walk, kw_walk_watched *mine, const kw_watcher *watcher,
                           kw_told *why) {
  kw_batch **shared = &mine->variants[variant_of(watcher)];
  *why = KW_NO_MEMORY;
  if (*shared != NULL || (*shared = kw_batch_new(mine->n)) == NULL) return *shared;
  if (fill(walk, mine, watcher, *shared)) return *shared;
  if (kw_store_read_failure(walk->store) == KW_ERR_CORRUPT) *why = KW_UNREADABLE;
  kw_batch_release(*shared);
  return *shared = NULL;
}

/* The first event of a batch that is not before `rev`, or its end. */
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

static int64_t last_revision(const kw_walk *walk, const kw_walk_watched *mine) {
  return walk->events[mine->at[mine->n - 1]].revision;
}

/* Where a watcher goes on that could not be told: not before what the walk has for its slot. */
static void stay(const kw_walk *walk, const kw_walk_watched *mine, kw_watcher *watcher) {
  int64_t first = walk->events[mine->at[0]].revision;
  if (watcher->next_rev < first) watcher->next_rev = first;
}

kw_told kw_walk_tell(kw_walk *walk, kw_watcher *watcher) {
  kw_walk_watched *mine = watcher->slot->pending;
  if (mine == NULL || last_revision(walk, mine) < watcher->next_rev) return KW_UNTOLD;
  kw_told why;
  kw_batch *batch = batch_for(walk, mine, watcher, &why);
  if (batch == NULL) {
    stay(walk, mine, watcher);
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
  stay(walk, mine, watcher);
  return KW_REFUSED;
}

kw_watched *kw_walk_first(const kw_walk *walk) {
  return walk->slots == NULL ? NULL : walk->slots->slot;
}

void kw_walk_done(kw_walk *walk) {
  kw_walk_watched *mine = walk->slots;
  walk->slots = mine->next;
  mine->slot->pending = NULL;
  for (unsigned i = 0; i < VARIANTS; i++) {
    if (mine->variants[i] != NULL) kw_batch_release(mine->variants[i]);
  }
}

void kw_walk_reset(kw_walk *walk) {
  while (walk->slots != NULL) kw_walk_done(walk);
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
