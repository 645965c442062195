/* SPDX-License-Identifier: MIT */
#include "store/read.h"

#include "codec/keyvalue.h"

int kw_read_check(const kw_store *store, int64_t rev, int64_t current) {
  if (rev > current) return KW_ERR_FUTURE_REVISION;
  if (rev < store->compact_revision) return KW_ERR_COMPACTED;
  if (rev > store->gap_after && rev < store->gap_until) return KW_ERR_COMPACTED;
  return KW_OK;
}

const kw_blob *kw_read_newest(const kw_store *store, const kw_key_history *history) {
  if (history == NULL || !kw_key_history_is_live(history)) return NULL;
  return kw_store_record(store, kw_key_history_last(history));
}

/* Returns the put that holds at `rev`, or NULL if the key does not exist then. */
static const kw_change *live_at(const kw_key_history *history, int64_t rev) {
  const kw_change *change = kw_key_history_at(history, rev);
  return change == NULL || change->tombstone ? NULL : change;
}

/* {====== Counting ====== */

/* Counts by looking at every key of the range. */
static int64_t count_by_index(const kw_store *store, const kw_range *range, int64_t rev) {
  kw_index_cursor cursor = kw_index_seek(&store->index, range->key);
  const kw_key_history *history;
  int64_t n = 0;
  while ((history = kw_index_next_in(&cursor, range)) != NULL) n += live_at(history, rev) != NULL;
  return n;
}

/* Returns the count at `rev` minus the count of now, as far as this key goes. Every change after `rev` is passed;
 * only the first one of a key counts. */
static int64_t count_difference(const kw_store *store, const kw_log_entry *entry, kw_slice key,
                                int64_t rev) {
  const kw_key_history *history = kw_index_find(&store->index, key);
  if (history == NULL) return 0; /* the record could not be read */
  const kw_change *before = kw_key_history_at(history, rev);
  const kw_change *after = before == NULL ? kw_key_history_first(history) : before + 1;
  if (after->main != entry->rev.main || after->sub != entry->rev.sub) return 0; /* not the first */
  bool was_live = before != NULL && !before->tombstone;
  return was_live - kw_key_history_is_live(history);
}

/* Counts back from now, through the changes since `rev`: cheap for the recent past, whatever the size of the
 * range. */
static int64_t count_by_log(const kw_store *store, const kw_range *range, int64_t rev) {
  kw_log_cursor cursor = kw_log_seek(store->log, (kw_revision){.main = rev + 1});
  kw_log_entry entry;
  int64_t n = kw_index_count(&store->index, range);
  while (kw_log_next(store->log, &cursor, &entry)) {
    kw_slice key = kw_keyvalue_key_in(entry.bytes);
    if (kw_range_contains(range, key)) n += count_difference(store, &entry, key, rev);
  }
  return n;
}

static int64_t count_at(const kw_store *store, const kw_range *range, int64_t rev) {
  int64_t now = kw_store_seen_revision(store);
  int64_t live = kw_index_count(&store->index, range);
  if (rev == now) return live;
  if (live < now - rev) return count_by_index(store, range, rev);
  return count_by_log(store, range, rev);
}

/* }====== */

/* {====== Sorting and filtering ====== */

typedef struct sort_item {
  const kw_blob *record;
  size_t at;      /* position in the order of keys, which decides between equals */
  int64_t number; /* compared first, then the bytes */
  kw_slice bytes;
} sort_item;

static int ascending(const void *a, const void *b) {
  const sort_item *x = a, *y = b;
  if (x->number != y->number) return x->number < y->number ? -1 : 1;
  int c = kw_slice_compare(x->bytes, y->bytes);
  return c != 0 ? c : (x->at > y->at) - (x->at < y->at);
}

static int descending(const void *a, const void *b) {
  const sort_item *x = a, *y = b;
  if (x->number != y->number) return x->number > y->number ? -1 : 1;
  int c = kw_slice_compare(y->bytes, x->bytes);
  return c != 0 ? c : (x->at > y->at) - (x->at < y->at);
}

static sort_item sort_item_of(const kw_blob *record, size_t at, kw_sort_target target) {
  sort_item item = {.record = record, .at = at};
  kw_kv kv = kw_keyvalue_of(record);
  switch (target) {
    case KW_SORT_KEY: item.bytes = kv.key; break;
    case KW_SORT_VERSION: item.number = kv.version; break;
    case KW_SORT_CREATE: item.number = kv.create_revision; break;
    case KW_SORT_MOD: item.number = kv.mod_revision; break;
    case KW_SORT_VALUE: item.bytes = kv.value; break;
  }
  return item;
}

static int sort_records(kw_records *records, const kw_range_op *op, kw_arena *arena) {
  sort_item *items = kw_arena_array(arena, records->n, sizeof *items);
  if (items == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < records->n; i++) {
    items[i] = sort_item_of(records->items[i], i, op->sort_target);
  }
  qsort(items, records->n, sizeof *items,
        op->sort_order == KW_SORT_DESCEND ? descending : ascending);
  for (size_t i = 0; i < records->n; i++) records->items[i] = items[i].record;
  return KW_OK;
}

static bool has_filter(const kw_range_op *op) {
  return op->min_mod_revision != 0 || op->max_mod_revision != 0 || op->min_create_revision != 0 ||
         op->max_create_revision != 0;
}

static bool is_between(int64_t x, int64_t min, int64_t max) {
  return (min == 0 || min <= x) && (max == 0 || x <= max);
}

static void filter_records(kw_records *records, const kw_range_op *op) {
  size_t kept = 0;
  for (size_t i = 0; i < records->n; i++) {
    kw_kv kv = kw_keyvalue_of(records->items[i]);
    if (is_between(kv.mod_revision, op->min_mod_revision, op->max_mod_revision) &&
        is_between(kv.create_revision, op->min_create_revision, op->max_create_revision)) {
      records->items[kept++] = records->items[i];
    }
  }
  records->n = kept;
}

/* True if the records, which are in the order of keys, have to be sorted. */
static bool wants_sort(const kw_range_op *op) {
  return op->sort_target != KW_SORT_KEY || op->sort_order == KW_SORT_DESCEND;
}

/* True if the limit is applied before sorting. For a target without an order etcd does so, although it then sorts.
 * With an order it sorts everything first. */
static bool limits_early(const kw_range_op *op) {
  if (has_filter(op)) return false;
  return op->sort_order == KW_SORT_NONE ||
         (op->sort_order == KW_SORT_ASCEND && op->sort_target == KW_SORT_KEY);
}

/* }====== */

/* Fills in the revisions of the next keys that exist at `rev`. Returns how many there are. */
static size_t next_revisions(kw_index_cursor *cursor, const kw_range *range, int64_t rev,
                             kw_revision *revs, size_t max) {
  const kw_key_history *history;
  size_t n = 0;
  while (n < max && (history = kw_index_next_in(cursor, range)) != NULL) {
    const kw_change *change = live_at(history, rev);
    if (change != NULL) revs[n++] = kw_change_revision(change);
  }
  return n;
}

/* Gathers up to `max` records of the range at `rev`, in the order of keys. */
static void collect(const kw_store *store, const kw_range *range, int64_t rev, size_t max,
                    kw_records *records) {
  kw_index_cursor cursor = kw_index_seek(&store->index, range->key);
  kw_revision revs[KW_LOG_BATCH];
  while (records->n < max) {
    size_t n = kw_min_size(max - records->n, KW_LOG_BATCH);
    n = next_revisions(&cursor, range, rev, revs, n);
    if (n == 0) return;
    kw_log_read_batch(store->log, revs, n, records->items + records->n);
    records->n += n;
  }
}

/* One key, found by one descent. */
static int collect_point(const kw_store *store, kw_slice key, int64_t rev, kw_arena *arena,
                         kw_reply *reply) {
  const kw_key_history *history = kw_index_find(&store->index, key);
  const kw_change *change = history == NULL ? NULL : live_at(history, rev);
  if (change == NULL) return KW_OK;
  kw_records *kvs = &reply->range.kvs;
  kvs->items = kw_arena_alloc(arena, sizeof *kvs->items);
  if (kvs->items == NULL) return KW_ERR_NO_MEMORY;
  kvs->items[kvs->n++] = kw_store_record(store, change);
  reply->range.count = 1;
  return KW_OK;
}

/* All keys of a range, or as many as the limit lets through before sorting. */
static int collect_range(const kw_store *store, const kw_range_op *op, int64_t rev, kw_arena *arena,
                         kw_reply *reply) {
  kw_records *kvs = &reply->range.kvs;
  bool is_counted = !op->uncounted || op->limit <= 0;
  int64_t count = reply->range.count = is_counted ? count_at(store, &op->range, rev) : op->limit;
  if (op->count_only || count == 0) return KW_OK;
  int64_t max = count;
  if (op->limit > 0 && op->limit < count && limits_early(op)) max = op->limit + wants_sort(op);
  kvs->items = kw_arena_array(arena, (size_t)max, sizeof *kvs->items);
  if (kvs->items == NULL) return KW_ERR_NO_MEMORY;
  collect(store, &op->range, rev, (size_t)max, kvs);
  return KW_OK;
}

int kw_read_range(const kw_store *store, const kw_range_op *op, int64_t current, kw_arena *arena,
                  kw_reply *reply) {
  int64_t rev = op->revision <= 0 ? current : op->revision;
  int rc = kw_read_check(store, rev, current);
  if (rc != KW_OK) return rc;
  *reply = (kw_reply){.kind = KW_OP_RANGE, .revision = current};
  reply->range.keys_only = op->keys_only;
  rc = kw_range_is_point(&op->range) ? collect_point(store, op->range.key, rev, arena, reply)
                                     : collect_range(store, op, rev, arena, reply);
  if (rc != KW_OK) return rc;
  kw_records *kvs = &reply->range.kvs;
  if (op->count_only) kvs->n = 0;
  if (has_filter(op)) filter_records(kvs, op);
  if (wants_sort(op) && kvs->n > 1 && (rc = sort_records(kvs, op, arena)) != KW_OK) return rc;
  if (op->limit > 0 && !op->count_only) {
    int64_t found = limits_early(op) ? reply->range.count : (int64_t)kvs->n;
    reply->range.more = found > op->limit;
    kvs->n = kw_min_size(kvs->n, (size_t)op->limit);
  }
  return KW_OK;
}
