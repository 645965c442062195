/* SPDX-License-Identifier: MIT */
#include "store/read.h"

#include "base/big_endian.h"
#include "codec/keyvalue.h"
#include "store/check.h"
#include "store/state.h"

/* Between two steps of a read of the past, events of 1 / 8 of history_bytes may arrive. */
#define READ_SHARE 8
#define CHEAP 1000 /* records of the log that are tried before the index */

int kw_read_check(const kw_store *store, int64_t rev, int64_t current) {
  if (rev > current) return KW_ERR_FUTURE_REVISION;
  if (rev < store->compact_revision) return KW_ERR_COMPACTED;
  if (rev > store->gap_after && rev < store->gap_until) return KW_ERR_COMPACTED;
  return KW_OK;
}

void kw_read_want(kw_store *store, int64_t rev) {
  if (rev < store->revision) kw_retention_want(store, store->options.history_bytes / READ_SHARE);
}

const kw_blob *kw_read_newest(const kw_store *store, const kw_key_history *history) {
  if (history == NULL || !kw_key_history_is_live(history)) return NULL;
  return kw_store_record(store, kw_key_history_last(history));
}

/* Returns the put that is valid at `rev`, or NULL if the key does not exist at `rev`. */
static const kw_change *live_at(const kw_key_history *history, int64_t rev) {
  const kw_change *change = kw_key_history_at(history, rev);
  return change == NULL || change->tombstone ? NULL : change;
}

/* One call of kw_read_step. */
typedef struct step {
  kw_store *store;
  kw_read *read;
  kw_arena *arena;
  kw_work *work;
  kw_records *page;
  size_t cap; /* of the page */
  kw_revision revs[KW_LOG_BATCH];
  size_t n_revs; /* revisions of kvs that are not in the page yet */
} step;

/* Decodes the record of a put, without adding it to the reply. */
static kw_kv look(step *s, kw_revision rev) {
  kw_kv kv;
  kw_slice record = kw_log_look(s->store->log, rev, false);
  bool is_whole = kw_keyvalue_decode(record, &kv);
  (void)is_whole;
  kw_work_spend(s->work, s->store->database == NULL ? 0 : record.len); /* its checksum */
  return kv;
}

/* {====== What an op asks for ====== */

bool kw_read_is_filtered(const kw_range_op *op) {
  return op->min_mod_revision != 0 || op->max_mod_revision != 0 || op->min_create_revision != 0 ||
         op->max_create_revision != 0;
}

/* True if the kvs are returned in descending order of keys. */
static bool goes_back(const kw_range_op *op) {
  return op->sort_target == KW_SORT_KEY && op->sort_order == KW_SORT_DESCEND;
}

/* True if the kvs are returned in another order than that of the keys. */
static bool wants_sort(const kw_range_op *op) {
  return op->sort_target != KW_SORT_KEY && !op->count_only && !kw_range_is_point(&op->range);
}

/* True if the limit is applied before sorting. etcd does so for a target without an order, although it then sorts. With
 * an order etcd sorts everything first. */
static bool limits_early(const kw_range_op *op) {
  if (kw_read_is_filtered(op)) return false;
  return op->sort_order == KW_SORT_NONE ||
         (op->sort_order == KW_SORT_ASCEND && op->sort_target == KW_SORT_KEY);
}

/* Returns how many keys the walk looks for; INT64_MAX: all. One key beyond the limit shows whether there are more, if
 * the count does not show that. etcd, too, sorts one more if it limits early. */
static int64_t wanted(const kw_range_op *op) {
  if (op->limit <= 0 || op->limit == INT64_MAX) return INT64_MAX;
  if (limits_early(op)) return op->limit + wants_sort(op);
  return wants_sort(op) ? INT64_MAX : op->limit + 1;
}

/* }====== */

/* {====== Walking through the index ====== */

/* Walks through the keys of a range that exist at a revision. */
typedef struct walker {
  const kw_store *store;
  const kw_range *range;
  int64_t rev;
  bool back;
  bool is_newest; /* the index itself knows which keys exist */
  bool is_inside; /* all further keys are known to be in the range */
  kw_index_cursor cursor;
} walker;

/* Returns a walker that continues after read->last, or begins. */
static walker walker_of(const step *s, bool back) {
  const kw_read *read = s->read;
  const kw_range *range = &read->op.range;
  walker w = {.store = s->store, .range = range, .rev = read->revision, .back = back};
  kw_slice last = read->last == NULL ? (kw_slice){0} : kw_blob_slice(read->last);
  w.is_newest = read->revision == kw_store_seen_revision(s->store);
  if (!back) {
    w.cursor = kw_index_seek(&s->store->index, read->last == NULL ? range->key : last);
  } else if (read->last == NULL) {
    w.cursor = kw_index_seek_back(&s->store->index, range->end, kw_range_is_open(range));
  } else {
    w.cursor = kw_index_seek_back(&s->store->index, kw_slice_of(last.data, last.len - 1), false);
  }
  return w;
}

/* Returns the next key, which need not exist at the revision; or NULL at the end of the range. */
static inline const kw_key_history *next_key(walker *w) {
  const kw_index *index = &w->store->index;
  const kw_key_history *history;
  if (w->is_inside) return kw_index_next_live(index, &w->cursor);
  if (w->back) {
    history =
        w->is_newest ? kw_index_previous_live(index, &w->cursor) : kw_index_previous(&w->cursor);
    bool is_in =
        history != NULL && kw_slice_compare(kw_key_history_key(history), w->range->key) >= 0;
    return is_in ? history : NULL;
  }
  history = w->is_newest ? kw_index_next_live(index, &w->cursor) : kw_index_next(&w->cursor);
  bool is_in = history != NULL && kw_range_reaches(w->range, kw_key_history_key(history));
  return is_in ? history : NULL;
}

/* Stores the last visited key; NULL: no key was visited in this step. Returns KW_UNFINISHED, or KW_ERR_NO_MEMORY. */
static int stop_after(kw_read *read, const kw_key_history *history) {
  if (history == NULL) return KW_UNFINISHED;
  kw_slice key = kw_key_history_key(history);
  kw_blob *last = kw_blob_new(key.len + 1);
  if (last == NULL) return KW_ERR_NO_MEMORY;
  memcpy(last->bytes, key.data, key.len);
  last->bytes[key.len] = 0;
  if (read->last != NULL) kw_blob_release(read->last);
  read->last = last;
  return KW_UNFINISHED;
}

static void forget_last(kw_read *read) {
  if (read->last != NULL) kw_blob_release(read->last);
  read->last = NULL;
}

/* }====== */

/* {====== Counting ====== */

static void end_count(kw_read *read) {
  forget_last(read);
  read->phase = read->op.count_only || read->count == 0 ? KW_READ_DONE : KW_READ_WALKING;
}

static int count_by_index(step *s) {
  kw_read *read = s->read;
  walker w = walker_of(s, false);
  const kw_key_history *history = NULL, *next;
  while (kw_work_is_left(s->work)) {
    if ((next = next_key(&w)) == NULL) {
      end_count(read);
      return KW_OK;
    }
    history = next;
    kw_work_spend(s->work, kw_key_history_key(history).len);
    read->count += live_at(history, read->revision) != NULL;
  }
  return stop_after(read, history);
}

static void begin_by_index(kw_read *read) {
  read->count = 0;
  read->phase = KW_READ_COUNTING_BY_INDEX;
}

/* While a write is open, records are still added to its revision: then only the index is exact. */
static void begin_by_log(const kw_store *store, kw_read *read) {
  if (store->open.n > 0) {
    begin_by_index(read);
    return;
  }
  read->phase = KW_READ_COUNTING_BY_LOG;
  read->count = kw_index_count(&store->index, &read->op.range);
  read->counted_from = store->applied;
  read->rewrites = store->rewrites;
  read->next = (kw_revision){.main = read->revision + 1};
  read->visited = 0;
  read->visits_max = read->count > CHEAP ? read->count : CHEAP;
}

/* Returns the contribution of one key to the difference between the count at the read's revision and the count at
 * counted_from. Called for every change between the two revisions; only the first change of a key counts. */
static int64_t count_difference(const step *s, kw_revision rev, kw_slice key) {
  const kw_read *read = s->read;
  const kw_key_history *history = kw_index_find(&s->store->index, key);
  if (history == NULL) return 0; /* the record could not be read */
  const kw_change *before = kw_key_history_at(history, read->revision);
  const kw_change *after = before == NULL ? kw_key_history_first(history) : before + 1;
  if (after->main != rev.main || after->sub != rev.sub) return 0; /* not the first */
  bool was_live = before != NULL && !before->tombstone;
  return was_live - (live_at(history, read->counted_from) != NULL);
}

/* Cheap for the recent past, whatever the size of the range. But a revision may have any number of records: after too
 * many, the index is counted instead. */
static int count_by_log(step *s) {
  kw_read *read = s->read;
  if (read->rewrites != s->store->rewrites) {
    begin_by_log(s->store, read);
    return KW_OK;
  }
  kw_log_cursor cursor = kw_log_seek(s->store->log, read->next);
  kw_log_entry entry;
  while (kw_work_is_left(s->work)) {
    if (!kw_log_next(s->store->log, &cursor, &entry) || entry.rev.main > read->counted_from) {
      end_count(read);
      return KW_OK;
    }
    kw_slice key = kw_keyvalue_key_in(entry.bytes);
    kw_work_spend(s->work, entry.bytes.len);
    if (kw_range_contains(&read->op.range, key)) read->count += count_difference(s, entry.rev, key);
    read->next = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
    if (++read->visited > read->visits_max) {
      begin_by_index(read);
      return KW_OK;
    }
  }
  return KW_UNFINISHED;
}

/* Computes the count at once if that is cheap; else the first phase or the walk computes it. */
static void begin_count(const kw_store *store, kw_read *read) {
  int64_t now = kw_store_seen_revision(store);
  int64_t live = kw_index_count(&store->index, &read->op.range);
  if (read->revision == now) {
    read->count = live;
    end_count(read);
    return;
  }
  if (!read->op.count_only && wanted(&read->op) == INT64_MAX) {
    read->counts_on_the_way = true;
    read->phase = KW_READ_WALKING;
    return;
  }
  read->count = kw_counts_find(&store->counts, &read->op.range, read->revision, store->rewrites);
  if (read->count >= 0) {
    end_count(read);
  } else if (now - read->revision <= (live > CHEAP ? live : CHEAP)) {
    begin_by_log(store, read);
  } else {
    begin_by_index(read);
  }
}

/* A client that lists in pages next asks for the keys after the last key of this page. */
static void remember_count(step *s, const kw_key_history *last) {
  const kw_read *read = s->read;
  int64_t rev = read->revision;
  if (!read->more || rev > s->store->revision || !limits_early(&read->op)) return;
  kw_counts_add(&s->store->counts, kw_key_history_key(last), read->op.range.end, rev,
                s->store->rewrites, read->count - read->found);
}

/* }====== */

/* {====== Filtering ====== */

static bool is_between(int64_t x, int64_t min, int64_t max) {
  return (min == 0 || min <= x) && (max == 0 || x <= max);
}

/* Returns the create revision of the key at a change. The state of the key has it, unless the key was created again
 * later. */
static int64_t created_at(step *s, const kw_key_history *history, const kw_change *change) {
  int64_t created = history->state.create_revision;
  bool is_known = created != 0 && created <= change->main;
  return is_known ? created : look(s, kw_change_revision(change)).create_revision;
}

static bool passes(step *s, const kw_key_history *history, const kw_change *change) {
  const kw_range_op *op = &s->read->op;
  if (!is_between(change->main, op->min_mod_revision, op->max_mod_revision)) return false;
  if (op->min_create_revision == 0 && op->max_create_revision == 0) return true;
  return is_between(created_at(s, history, change), op->min_create_revision,
                    op->max_create_revision);
}

/* }====== */

/* {====== Sorting ====== */

static int64_t version_at(step *s, const kw_key_history *history, const kw_change *change) {
  if (kw_key_history_is_live(history) && change == kw_key_history_last(history))
    return history->state.version;
  return look(s, kw_change_revision(change)).version;
}

/* Returns the first eight bytes of a value as a number, in the order of the bytes. */
static uint64_t head_of(kw_slice value) {
  uint8_t bytes[8] = {0};
  if (value.len > 0) memcpy(bytes, value.data, kw_min_size(value.len, sizeof bytes));
  return kw_big_endian_get64(bytes);
}

static kw_sorter_item item_of(step *s, const kw_key_history *history, const kw_change *change) {
  uint64_t head = 0;
  switch (s->read->op.sort_target) {
    case KW_SORT_KEY: break;
    case KW_SORT_VERSION: head = (uint64_t)version_at(s, history, change); break;
    case KW_SORT_CREATE: head = (uint64_t)created_at(s, history, change); break;
    case KW_SORT_MOD: head = (uint64_t)change->main; break;
    case KW_SORT_VALUE: head = head_of(look(s, kw_change_revision(change)).value); break;
  }
  if (s->read->op.sort_order == KW_SORT_DESCEND) head = ~head;
  return (kw_sorter_item){.head = head, .id = change->main, .sub = change->sub};
}

static kw_revision revision_of(const kw_sorter_item *item) {
  return (kw_revision){.main = item->id, .sub = item->sub};
}

/* Compares the values of two kvs that begin with the same bytes. */
static int compare_values(const kw_sorter_item *a, const kw_sorter_item *b, void *ctx) {
  step *s = ctx;
  kw_slice x = look(s, revision_of(a)).value;
  kw_slice y = look(s, revision_of(b)).value;
  int c = kw_slice_compare(x, y);
  kw_work_spend(s->work, kw_min_size(x.len, y.len));
  return s->read->op.sort_order == KW_SORT_DESCEND ? -c : c;
}

static kw_sorter_compare compare_of(const kw_range_op *op) {
  return op->sort_target == KW_SORT_VALUE ? compare_values : NULL;
}

static int sort(step *s) {
  kw_read *read = s->read;
  while (kw_work_is_left(s->work)) {
    kw_work_spend(s->work, 0);
    if (kw_sorter_settle(&read->sorter, compare_of(&read->op), s)) {
      read->phase = KW_READ_TAKING;
      return KW_OK;
    }
  }
  return KW_UNFINISHED;
}

/* }====== */

/* {====== Pages ====== */

/* Returns how many more kvs are expected, or 0 if that is unknown. */
static int64_t kvs_left(const kw_read *read) {
  const kw_range_op *op = &read->op;
  int64_t all = read->counts_on_the_way || kw_read_is_filtered(op) ? read->n : read->count;
  if (op->limit > 0 && op->limit < all) all = op->limit;
  return all - read->n;
}

static bool reserve_page(step *s) {
  kw_records *page = s->page;
  if (page->n + s->n_revs <= s->cap) return true;
  int64_t left = kvs_left(s->read);
  if (left > s->work->left) left = s->work->left;
  size_t cap = left > 0 ? (size_t)left : 0;
  if (cap < s->cap) cap = s->cap;
  if (cap < page->n + s->n_revs) cap = 2 * (page->n + s->n_revs);
  const kw_blob **items = kw_arena_array(s->arena, cap, sizeof *items);
  if (items == NULL) return false;
  if (page->n > 0) memcpy(items, page->items, page->n * sizeof *items);
  page->items = items;
  s->cap = cap;
  return true;
}

/* Reads the records of the batch into the page. Returns KW_OK, or KW_ERR_NO_MEMORY. */
static int flush(step *s) {
  kw_records *page = s->page;
  if (s->n_revs == 0) return KW_OK;
  if (!reserve_page(s)) return KW_ERR_NO_MEMORY;
  kw_log_read_batch(s->store->log, s->revs, s->n_revs, page->items + page->n);
  for (size_t i = 0; i < s->n_revs; i++)
    s->work->left -= (int64_t)(page->items[page->n + i]->len / KW_WORK_BYTES);
  page->n += s->n_revs;
  s->read->n += (int64_t)s->n_revs;
  s->n_revs = 0;
  return KW_OK;
}

/* Adds a kv to the page. Records of a database are copied, so they are read, and counted, one by one. */
static inline int add(step *s, kw_revision rev) {
  s->revs[s->n_revs++] = rev;
  bool is_full = s->n_revs == KW_LOG_BATCH || s->store->database != NULL;
  return is_full ? flush(s) : KW_OK;
}

static int take(step *s) {
  kw_read *read = s->read;
  size_t n = read->sorter.n;
  if (read->op.limit > 0) n = kw_min_size(n, (size_t)read->op.limit);
  for (size_t at = (size_t)read->n; at < n; at++) {
    if (!kw_work_is_left(s->work)) {
      int rc = flush(s);
      return rc == KW_OK ? KW_UNFINISHED : rc;
    }
    kw_work_spend(s->work, 0);
    int rc = add(s, revision_of(&read->sorter.items[at]));
    if (rc != KW_OK) return rc;
  }
  read->phase = KW_READ_DONE;
  return flush(s);
}

/* Adds a key that was found to the page, or to the keys that are sorted. */
static int take_key(step *s, const kw_key_history *history, const kw_change *change) {
  kw_read *read = s->read;
  const kw_range_op *op = &read->op;
  read->found++;
  if (op->count_only) return KW_OK;
  if (wants_sort(op)) {
    bool ok = kw_sorter_push(&read->sorter, item_of(s, history, change), compare_of(op), s);
    return ok ? KW_OK : KW_ERR_NO_MEMORY;
  }
  bool is_beyond = op->limit > 0 && read->found > op->limit;
  return is_beyond ? KW_OK : add(s, kw_change_revision(change));
}

static int end_walk(step *s, const kw_key_history *last) {
  kw_read *read = s->read;
  const kw_range_op *op = &read->op;
  int64_t found = limits_early(op) ? read->count : read->found;
  if (op->limit > 0 && !op->count_only) read->more = found > op->limit;
  forget_last(read);
  read->phase = wants_sort(op) ? KW_READ_SORTING : KW_READ_DONE;
  if (last != NULL && !wants_sort(op)) remember_count(s, last);
  return flush(s);
}

/* If the walk looks for all keys of the range, and their count is known, it ends with the last of them. */
static int walk(step *s) {
  kw_read *read = s->read;
  const kw_key_history *history = NULL, *next;
  int64_t most = wanted(&read->op);
  bool is_filtered = kw_read_is_filtered(&read->op);
  bool is_plain = !wants_sort(&read->op) && !read->op.count_only && read->op.limit <= 0;
  bool is_counted = !is_filtered && !read->counts_on_the_way;
  walker w = walker_of(s, goes_back(&read->op) && !kw_range_is_point(&read->op.range));
  w.is_inside = is_counted && w.is_newest && !w.back;
  if (is_counted && most > read->count) most = read->count;
  int rc = KW_OK;
  while (rc == KW_OK && kw_work_is_left(s->work)) {
    if ((next = next_key(&w)) == NULL) return end_walk(s, NULL);
    history = next;
    kw_work_spend(s->work, w.is_inside ? 0 : kw_key_history_key(history).len);
    const kw_change *change =
        w.is_newest ? kw_key_history_last(history) : live_at(history, read->revision);
    if (change == NULL) continue;
    read->count += read->counts_on_the_way;
    if (is_filtered && !passes(s, history, change)) continue;
    if (is_plain) {
      read->found++;
      rc = add(s, kw_change_revision(change));
    } else {
      rc = take_key(s, history, change);
    }
    if (rc == KW_OK && read->found >= most) return end_walk(s, history);
  }
  if (rc == KW_OK) rc = flush(s);
  return rc == KW_OK ? stop_after(read, history) : rc;
}

/* }====== */

int kw_read_begin_at(kw_store *store, kw_read *read, const kw_range_op *op, int64_t current) {
  int64_t rev = op->revision <= 0 ? current : op->revision;
  int rc = kw_read_check(store, rev, current);
  if (rc != KW_OK) return rc;
  kw_read_want(store, rev);
  *read = (kw_read){.op = *op, .revision = rev, .rewrites = store->rewrites};
  if (kw_range_is_point(&op->range)) {
    read->counts_on_the_way = true;
    read->phase = KW_READ_WALKING;
  } else {
    begin_count(store, read);
  }
  if (op->limit > 0 && wants_sort(op)) {
    int64_t most = op->limit == INT64_MAX ? INT64_MAX : op->limit + limits_early(op);
    read->sorter.limit = (size_t)most;
  }
  return KW_OK;
}

int kw_read_begin(kw_store *store, kw_read *read, const kw_range_op *op, kw_arena *arena) {
  kw_op checked = {.kind = KW_OP_RANGE, .range = *op};
  int rc = kw_check_op(&checked, store->options.max_txn_ops, arena);
  return rc == KW_OK ? kw_read_begin_at(store, read, op, store->revision) : rc;
}

int kw_read_step_inside(kw_store *store, kw_read *read, kw_arena *arena, kw_work *work,
                        kw_records *page) {
  static int (*const phases[])(step *) = {[KW_READ_COUNTING_BY_LOG] = count_by_log,
                                          [KW_READ_COUNTING_BY_INDEX] = count_by_index,
                                          [KW_READ_WALKING] = walk,
                                          [KW_READ_SORTING] = sort,
                                          [KW_READ_TAKING] = take};
  step s = {.store = store, .read = read, .arena = arena, .work = work, .page = page};
  *page = (kw_records){0};
  int rc = kw_read_check(store, read->revision, read->revision);
  if (store->options.replica && read->rewrites != store->rewrites) rc = KW_ERR_COMPACTED;
  kw_read_want(store, read->revision);
  while (rc == KW_OK && read->phase != KW_READ_DONE) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    rc = phases[read->phase](&s);
  }
  return rc;
}

int kw_read_step(kw_store *store, kw_read *read, kw_arena *arena, kw_work *work, kw_records *page) {
  kw_log_release(store->log);
  int rc = kw_read_step_inside(store, read, arena, work, page);
  int failure = kw_log_failure(store->log);
  if (rc >= 0 && failure != KW_OK) rc = failure;
  if (rc == KW_OK) kw_store_count_range(store);
  return rc;
}

void kw_read_drop(kw_read *read) {
  forget_last(read);
  kw_sorter_drop(&read->sorter);
}

size_t kw_read_held(const kw_read *read) {
  size_t last = read->last == NULL ? 0 : sizeof(kw_blob) + read->last->len;
  return last + read->sorter.cap * sizeof *read->sorter.items;
}

/* Reads one key, by one descent. */
static int read_point(const kw_store *store, const kw_read *read, kw_arena *arena,
                      kw_reply *reply) {
  const kw_key_history *history = kw_index_find(&store->index, read->op.range.key);
  const kw_change *change = history == NULL ? NULL : live_at(history, read->revision);
  kw_records *kvs = &reply->range.kvs;
  if (change == NULL) return KW_OK;
  reply->range.count = 1;
  if (read->op.count_only) return KW_OK;
  kvs->items = kw_arena_alloc(arena, sizeof *kvs->items);
  if (kvs->items == NULL) return KW_ERR_NO_MEMORY;
  kvs->items[kvs->n++] = kw_store_record(store, change);
  return KW_OK;
}

int kw_read_range(kw_store *store, const kw_range_op *op, int64_t current, kw_work *work,
                  kw_arena *arena, kw_reply *reply) {
  kw_read read;
  kw_work whole = kw_work_without_end();
  bool is_point = kw_range_is_point(&op->range);
  int rc = kw_read_begin_at(store, &read, op, current);
  if (rc != KW_OK) return rc;
  *reply = (kw_reply){.kind = KW_OP_RANGE, .revision = current};
  reply->range.keys_only = op->keys_only;
  if (is_point && !kw_read_is_filtered(op)) return read_point(store, &read, arena, reply);
  rc = kw_read_step_inside(store, &read, arena, is_point ? &whole : work, &reply->range.kvs);
  reply->range.count = read.count;
  reply->range.more = read.more;
  kw_read_drop(&read);
  return rc;
}
