/* SPDX-License-Identifier: MIT
 *
 * hash: etcd's HashKV. It shows whether two stores, or a store and an etcd, have the same history.
 *
 * The hash is the CRC-32C of "key", and then of every record up to a revision, in order: its revision key (see
 * codec/revision_key.h) and its bytes. Records that compaction has removed, or is about to remove, are not included.
 */
#include "base/crc32c.h"
#include "codec/keyvalue.h"
#include "codec/revision_key.h"
#include "store/read.h"
#include "store/state.h"

#define FIRST_KEYS 64 /* keys that are examined before the records */

static uint32_t extend(uint32_t crc, const kw_log_entry *entry) {
  uint8_t key[KW_REVISION_KEY_ROOM];
  crc = kw_crc32c(crc, kw_revision_key_put(key, entry->rev, entry->tombstone));
  return kw_crc32c(crc, entry->bytes);
}

/* True if a record is a put, and the newest of its key at `rev`. */
static bool is_newest_put(const kw_store *store, const kw_log_entry *entry, int64_t rev) {
  if (entry->tombstone) return false;
  const kw_key_history *history = kw_index_find(&store->index, kw_keyvalue_key_in(entry->bytes));
  const kw_change *newest = history == NULL ? NULL : kw_key_history_at(history, rev);
  return newest != NULL && kw_revision_compare(kw_change_revision(newest), entry->rev) == 0;
}

/* True if etcd's hash includes a record. Up to the compacted revision it includes those puts that are the newest of
 * their key at `newest_at`. Tombstones at the compacted revision are not included: old versions of etcd do not keep
 * them. */
static bool counts(const kw_store *store, const kw_log_entry *entry, int64_t newest_at) {
  return entry->rev.main > store->compact_revision || is_newest_put(store, entry, newest_at);
}

/* Begins to hash, at the first record. */
static void begin_hashing(kw_hash_walk *walk, int64_t newest_at) {
  walk->newest_at = newest_at;
  walk->next = (kw_revision){0};
  walk->is_hashing = true;
}

/* True if one of the first keys lives at `rev`. */
static bool has_live_among_first(const kw_store *store, int64_t rev) {
  kw_index_cursor cursor = kw_index_seek(&store->index, kw_slice_of("", 0));
  const kw_key_history *history;
  for (int i = 0; i < FIRST_KEYS && (history = kw_index_next(&cursor)) != NULL; i++) {
    const kw_change *change = kw_key_history_at(history, rev);
    if (change != NULL && !change->tombstone) return true;
  }
  return false;
}

/* The hash depends on whether any key lives at its revision. Before the first compaction this has no effect, and for
 * the newest revision the index knows it. Otherwise a few keys usually show it; if not, the records are searched
 * first. */
static int begin(const kw_store *store, kw_hash_walk *walk) {
  int64_t rev = walk->revision <= 0 ? store->revision : walk->revision;
  int rc = kw_read_check(store, rev, store->revision);
  if (rc != KW_OK) return rc;
  *walk = (kw_hash_walk){.revision = walk->revision,
                         .hash = {.hash = kw_crc32c(0, kw_slice_of("key", 3)),
                                  .revision = store->revision,
                                  .compact_revision = store->compact_revision,
                                  .hash_revision = rev},
                         .has_begun = true};
  if (store->compact_revision < 0) {
    begin_hashing(walk, rev);
  } else if (rev == store->applied && !kw_store_is_busy(store)) {
    begin_hashing(walk, store->index.live > 0 ? rev : store->compact_revision);
  } else if (has_live_among_first(store, rev)) {
    begin_hashing(walk, rev);
  }
  return KW_OK;
}

/* After a compaction the hash includes other records. */
static bool must_begin(const kw_store *store, const kw_hash_walk *walk) {
  return !walk->has_begun || walk->hash.compact_revision != store->compact_revision;
}

int kw_store_hash(const kw_store *store, kw_hash_walk *walk, size_t records) {
  int rc = must_begin(store, walk) ? begin(store, walk) : KW_OK;
  if (rc != KW_OK) return rc;
  kw_log_release(store->log); /* clears the failure of an earlier reader */
  kw_log_cursor cursor = kw_log_seek(store->log, walk->next);
  kw_log_entry entry;
  kw_work work = {.left = (int64_t)records};
  while (kw_work_is_left(&work)) {
    bool is_there = kw_log_next(store->log, &cursor, &entry);
    if (!is_there && kw_log_failure(store->log) != KW_OK) return kw_log_failure(store->log);
    int64_t rev = walk->hash.hash_revision;
    bool is_end = !is_there || entry.rev.main > rev;
    if (!walk->is_hashing && (is_end || is_newest_put(store, &entry, rev))) {
      begin_hashing(walk, is_end ? store->compact_revision : rev);
      cursor = kw_log_seek(store->log, walk->next);
      continue;
    }
    walk->is_done = is_end;
    if (is_end) return KW_OK;
    if (walk->is_hashing && counts(store, &entry, walk->newest_at))
      walk->hash.hash = extend(walk->hash.hash, &entry);
    walk->next = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
    kw_work_spend(&work, entry.bytes.len);
  }
  return KW_OK;
}
