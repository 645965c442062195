/* SPDX-License-Identifier: MIT */
#include "watch/scroll.h"

#include "codec/keyvalue.h"
#include "watch/state.h"

void kw_scroll_open(kw_scroll *scroll, const kw_hub *hub, const kw_item *item) {
  *scroll = (kw_scroll){.hub = hub,
                        .watcher = item->watcher,
                        .batch = kw_batch_retain(item->batch),
                        .next = {item->batch->long_revision, item->batch->long_first},
                        .left = item->batch->long_n};
}

bool kw_scroll_seek(kw_scroll *scroll) {
  const kw_batch *batch = scroll->batch;
  int64_t compacted = kw_store_compact_revision(scroll->hub->store);
  if (compacted != batch->compacted && compacted >= batch->long_revision) return false;
  scroll->cursor = kw_store_seek(scroll->hub->store, scroll->next);
  return true;
}

static void drop_record(kw_scroll *scroll) {
  if (scroll->record != NULL) kw_blob_release(scroll->record);
  scroll->record = NULL;
}

/* Sets `event` to an event that the watcher wants. */
static int give(kw_scroll *scroll, const kw_log_entry *entry, kw_work *work, kw_event *event) {
  const kw_store *store = scroll->hub->store;
  event->record = scroll->record = kw_log_keep(entry);
  if (event->record == NULL) return KW_ERR_NO_MEMORY;
  if (scroll->watcher->prev_kv)
    event->prev = kw_walk_previous(store, event, scroll->batch->compacted);
  if (event->prev != NULL && event->prev->len == 0) return kw_store_read_failure(store);
  kw_work_spend(work, entry->bytes.len + (event->prev == NULL ? 0 : event->prev->len));
  scroll->left--;
  return KW_OK;
}

/* Moves the cursor to the next entry that the watcher wants. scroll->next is then the revision of that entry. */
static int find(kw_scroll *scroll, kw_work *work, kw_log_entry *entry) {
  const kw_store *store = scroll->hub->store;
  kw_range range = kw_watcher_range(scroll->watcher);
  while (kw_work_is_left(work)) {
    bool is_there = kw_store_next(store, &scroll->cursor, entry);
    if (!is_there && kw_store_read_failure(store) != KW_OK) return kw_store_read_failure(store);
    if (!is_there || entry->rev.main != scroll->next.main) return KW_ERR_CORRUPT;
    scroll->next.sub = entry->rev.sub;
    if (kw_walk_is_wanted(scroll->watcher, entry->tombstone) &&
        kw_range_contains(&range, kw_keyvalue_key_in(entry->bytes)))
      return KW_OK;
    scroll->next.sub++;
    kw_work_spend(work, kw_log_looked_at(entry));
  }
  return KW_UNFINISHED;
}

bool kw_scroll_skip(kw_scroll *scroll, kw_work *work) {
  kw_log_entry entry;
  return !kw_scroll_seek(scroll) || find(scroll, work, &entry) != KW_UNFINISHED;
}

int kw_scroll_next(kw_scroll *scroll, kw_work *work, kw_event *event) {
  kw_log_entry entry;
  drop_record(scroll);
  int rc = find(scroll, work, &entry);
  if (rc != KW_OK) return rc;
  *event = (kw_event){.revision = entry.rev.main, .is_delete = entry.tombstone};
  rc = give(scroll, &entry, work, event);
  if (rc == KW_OK) scroll->next.sub++;
  return rc;
}

void kw_scroll_close(kw_scroll *scroll) {
  if (scroll->batch == NULL) return;
  drop_record(scroll);
  kw_batch_release(scroll->batch);
  scroll->batch = NULL;
}
