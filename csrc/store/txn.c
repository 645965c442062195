/* SPDX-License-Identifier: MIT */
#include "store/txn.h"

#include "codec/keyvalue.h"
#include "store/read.h"
#include "store/write.h"

#define LEAST_RECORDS 4 /* smallest capacity of a list of records */

/* {====== Put and delete ====== */

static int64_t next_revision(const kw_store *store) {
  return store->applied + 1;
}

/* Returns the revision that the operations see. */
static int64_t seen_by(const kw_store *store, const kw_txn *txn) {
  return txn->revision != 0 ? txn->revision : kw_store_seen_revision(store);
}

/* The lease of a put must exist. Like etcd, a plain put checks its lease first, and a put in a transaction its key. */
static int check_lease(const kw_store *store, const kw_put_op *op) {
  if (op->lease != 0 && kw_leases_find(&store->leases, op->lease) == NULL)
    return KW_ERR_LEASE_NOT_FOUND;
  return KW_OK;
}

static int check_previous(const kw_store *store, const kw_put_op *op) {
  if (!op->ignore_value && !op->ignore_lease) return KW_OK;
  const kw_key_history *history = kw_index_find(&store->index, op->key);
  return history != NULL && kw_key_history_is_live(history) ? KW_OK : KW_ERR_KEY_NOT_FOUND;
}

/* Returns the arena for the arrays of a page, which are needed only in this turn. */
static kw_arena *arena_of_pages(kw_txn *txn) {
  if (txn->on_record == NULL) return txn->arena;
  kw_arena_reset(&txn->pages);
  return &txn->pages;
}

/* True if the list of a reply with `n` items is full. */
static bool is_full(size_t n) {
  return n == 0 || (n >= LEAST_RECORDS && (n & (n - 1)) == 0);
}

/* Adds a record to a list, whose capacity is the next power of two. */
static int push(kw_records *records, kw_arena *arena, const kw_blob *record) {
  if (is_full(records->n)) {
    size_t cap = records->n == 0 ? LEAST_RECORDS : 2 * records->n;
    const kw_blob **items = kw_arena_array(arena, cap, sizeof *items);
    if (items == NULL) return KW_ERR_NO_MEMORY;
    if (records->n > 0) memcpy(items, records->items, records->n * sizeof *items);
    records->items = items;
  }
  records->items[records->n++] = record;
  return KW_OK;
}

/* Adds a borrowed record to a reply. */
static int add_record(kw_reply *reply, kw_arena *arena, const kw_blob *record) {
  if (reply->kind == KW_OP_RANGE) return push(&reply->range.kvs, arena, record);
  if (reply->kind == KW_OP_DELETE) return push(&reply->delete.prev_kvs, arena, record);
  reply->put.prev_kv = record;
  return KW_OK;
}

/* Adds a record to the reply of an item. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_TOO_MANY_REQUESTS if the reply is
 * beyond the limit. */
static int gather(kw_txn *txn, const kw_txn_item *item, const kw_blob *record, size_t len) {
  txn->bytes += len;
  if (txn->bytes > txn->limit) return KW_ERR_TOO_MANY_REQUESTS;
  if (txn->on_record != NULL) return txn->on_record(item->reply, item->op, record, txn->ctx);
  return add_record(item->reply, txn->arena, record);
}

/* Counts the searches for the beginning of a range, even of an empty one, and for its end. */
static void spend_range(kw_work *work, const kw_range *range) {
  kw_work_spend(work, range->key.len + range->end.len);
}

static int run_put(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  const kw_put_op *op = &item->op->put;
  kw_reply *reply = item->reply;
  kw_key_history *history = kw_index_find_or_add(&store->index, op->key);
  if (history == NULL) return KW_ERR_NO_MEMORY;
  int64_t main = next_revision(store);
  kw_kv kv = {.key = op->key,
              .value = op->value,
              .create_revision = main,
              .mod_revision = main,
              .version = 1,
              .lease = op->lease};
  const kw_blob *previous = NULL;
  if (kw_key_history_is_live(history)) {
    kv.create_revision = history->state.create_revision;
    kv.version = history->state.version + 1;
    if (op->prev_kv || op->ignore_value) previous = kw_read_newest(store, history);
    if (op->ignore_value) kv.value = kw_keyvalue_of(previous).value;
    if (op->ignore_lease) kv.lease = history->state.lease;
  } else if (op->ignore_value || op->ignore_lease) {
    return KW_ERR_KEY_NOT_FOUND; /* the transaction itself has deleted the key */
  }
  kw_work_spend(work, op->key.len + (previous == NULL ? 0 : previous->len));
  store->counting.puts++;
  store->counting.put_bytes += kv.key.len + kv.value.len;
  *reply = (kw_reply){.kind = KW_OP_PUT, .revision = main};
  int rc = kw_write_put(store, main, history, &kv);
  if (rc != KW_OK || previous == NULL || !op->prev_kv) return rc;
  return gather(txn, item, previous, previous->len);
}

static void begin_delete(const kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  const kw_range *range = &item->op->delete.range;
  *item->reply = (kw_reply){.kind = KW_OP_DELETE};
  txn->is_inside = true;
  txn->cursor = kw_index_seek(&store->index, range->key);
  spend_range(work, range);
}

static int delete_one(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_key_history *history,
                      kw_work *work) {
  size_t len = kw_key_history_key(history).len; /* the tombstone copies the key */
  if (item->op->delete.prev_kv) {
    const kw_blob *record = kw_read_newest(store, history);
    kw_work_spend(work, record->len);
    int rc = gather(txn, item, record, record->len);
    if (rc != KW_OK) return rc;
  }
  int rc = kw_write_delete(store, next_revision(store), history);
  if (rc != KW_OK) return rc;
  item->reply->delete.deleted++;
  kw_work_spend(work, len);
  return KW_OK;
}

/* The cursor remains valid between turns: until the evaluation ends, no key is added or removed. */
static int run_delete(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_key_history *history;
  const kw_range *range = &item->op->delete.range;
  if (!txn->is_inside) begin_delete(store, txn, item, work);
  while ((history = kw_index_next_in(&store->index, &txn->cursor, range)) != NULL) {
    int rc = delete_one(store, txn, item, history, work);
    if (rc != KW_OK) return rc;
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
  }
  txn->is_inside = false;
  item->reply->revision = kw_store_seen_revision(store);
  return KW_OK;
}

/* }====== */

/* {====== Compares ====== */

/* Decodes the record of a change. An unreadable record counts as empty, see kw_log_failure. */
static kw_kv look(const kw_store *store, const kw_change *change, kw_work *work) {
  kw_kv kv = {0};
  kw_slice record = kw_log_look(store->log, kw_change_revision(change), false);
  if (store->database != NULL) kw_work_spend(work, record.len); /* its checksum */
  return kw_keyvalue_decode(record, &kv) ? kv : (kw_kv){0};
}

/* Returns the fields of a key that a compare needs, as they were after a change. */
static kw_kv fields_of(const kw_store *store, const kw_compare *compare,
                       const kw_key_history *history, const kw_change *change, kw_work *work) {
  bool is_newest = change == kw_key_history_last(history);
  if (compare->target == KW_COMPARE_VALUE || !is_newest || store->options.replica)
    return look(store, change, work); /* the index of a replica lacks leases and revisions */
  return (kw_kv){.version = history->state.version,
                 .create_revision = history->state.create_revision,
                 .lease = history->state.lease,
                 .mod_revision = change->main};
}

static int64_t number_of(kw_compare_target target, const kw_kv *kv) {
  switch (target) {
    case KW_COMPARE_VERSION: return kv->version;
    case KW_COMPARE_CREATE: return kv->create_revision;
    case KW_COMPARE_MOD: return kv->mod_revision;
    case KW_COMPARE_LEASE: return kv->lease;
    case KW_COMPARE_VALUE: break;
  }
  return 0;
}

static int order_of(const kw_compare *compare, const kw_kv *kv) {
  if (compare->target == KW_COMPARE_VALUE) return kw_slice_compare(kv->value, compare->value);
  return kw_order_signed(number_of(compare->target, kv), compare->number);
}

/* True if the compare holds for a key. */
static bool holds_for(const kw_compare *compare, const kw_kv *kv) {
  int order = order_of(compare, kv);
  switch (compare->result) {
    case KW_COMPARE_EQUAL: return order == 0;
    case KW_COMPARE_GREATER: return order > 0;
    case KW_COMPARE_LESS: return order < 0;
    case KW_COMPARE_NOT_EQUAL: return order != 0;
  }
  return true; /* an unknown comparison result holds, as in etcd */
}

/* True if the compare holds for an empty range, which counts as one key with all fields zero, except that a compare of
 * the value never holds. */
static bool holds_for_none(const kw_compare *compare) {
  return compare->target != KW_COMPARE_VALUE && holds_for(compare, &(kw_kv){0});
}

/* Returns the put of a key that the operations see, or NULL if the key does not exist. */
static const kw_change *seen_put(const kw_txn *txn, const kw_key_history *history) {
  if (history == NULL) return NULL;
  if (txn->revision == 0)
    return kw_key_history_is_live(history) ? kw_key_history_last(history) : NULL;
  const kw_change *change = kw_key_history_at(history, txn->revision);
  return change == NULL || change->tombstone ? NULL : change;
}

/* Counts the bytes of a key and of its value that a compare has read. */
static void spend_compare(kw_work *work, const kw_compare *compare, kw_slice key) {
  size_t value = compare->target == KW_COMPARE_VALUE ? compare->value.len : 0;
  kw_work_spend(work, key.len + value);
}

static bool holds_for_point(const kw_store *store, const kw_txn *txn, const kw_compare *compare,
                            kw_work *work) {
  const kw_key_history *history = kw_index_find(&store->index, compare->range.key);
  const kw_change *change = seen_put(txn, history);
  spend_compare(work, compare, compare->range.key);
  if (change == NULL) return holds_for_none(compare);
  kw_kv kv = fields_of(store, compare, history, change, work);
  return holds_for(compare, &kv);
}

/* Evaluates whether a compare holds for every key of its range. Returns KW_OK or KW_UNFINISHED. */
static int compare_range(const kw_store *store, kw_txn *txn, const kw_compare *compare,
                         kw_work *work, bool *holds) {
  const kw_key_history *history;
  if (!txn->is_inside) {
    txn->cursor = kw_index_seek(&store->index, compare->range.key);
    txn->is_inside = txn->is_empty = true;
    spend_range(work, &compare->range);
  }
  *holds = true;
  const kw_range *range = &compare->range;
  while (*holds && (history = kw_index_next_in(&store->index, &txn->cursor, range)) != NULL) {
    kw_kv kv = fields_of(store, compare, history, kw_key_history_last(history), work);
    *holds = holds_for(compare, &kv);
    txn->is_empty = false;
    spend_compare(work, compare, kw_key_history_key(history));
    if (*holds && !kw_work_is_left(work)) return KW_UNFINISHED;
  }
  if (txn->is_empty) *holds = holds_for_none(compare);
  txn->is_inside = false;
  return KW_OK;
}

static int begin_read(kw_store *store, kw_txn *txn, const kw_range_op *op, kw_work *work) {
  spend_range(work, &op->range);
  int rc = kw_read_begin_at(store, &txn->read, op, seen_by(store, txn));
  if (rc == KW_OK) txn->is_inside = txn->is_reading = true;
  return rc;
}

static void end_read(kw_txn *txn) {
  kw_read_drop(&txn->read);
  txn->is_inside = txn->is_reading = false;
}

/* Like compare_range, for an evaluation at a revision: keys may be added and removed between its turns. */
static int compare_range_at(kw_store *store, kw_txn *txn, const kw_compare *compare, kw_work *work,
                            bool *holds) {
  kw_records page;
  bool is_first = !txn->is_inside;
  int rc = is_first ? begin_read(store, txn, &(kw_range_op){.range = compare->range}, work) : KW_OK;
  if (rc != KW_OK) return rc;
  if (is_first) txn->is_empty = true;
  rc = kw_read_step_inside(store, &txn->read, arena_of_pages(txn), work, &page);
  if (rc < 0) return rc;
  *holds = true;
  for (size_t i = 0; i < page.n && *holds; i++) {
    kw_kv kv = kw_keyvalue_of(page.items[i]);
    *holds = holds_for(compare, &kv);
  }
  if (page.n > 0) txn->is_empty = false;
  if (*holds && rc == KW_UNFINISHED) return rc;
  if (txn->is_empty) *holds = holds_for_none(compare);
  end_read(txn);
  return KW_OK;
}

/* Evaluates whether all compares of a transaction hold. Returns KW_OK, KW_UNFINISHED or an error. */
static int compare_all(kw_store *store, kw_txn *txn, const kw_txn_op *op, kw_work *work,
                       bool *succeeded) {
  *succeeded = true;
  while (*succeeded && txn->n_held < op->n_compares) {
    const kw_compare *compare = &op->compares[txn->n_held];
    int rc = KW_OK;
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    if (kw_range_is_point(&compare->range)) {
      *succeeded = holds_for_point(store, txn, compare, work);
    } else if (txn->revision == 0) {
      rc = compare_range(store, txn, compare, work, succeeded);
    } else {
      rc = compare_range_at(store, txn, compare, work, succeeded);
    }
    if (rc != KW_OK) return rc;
    txn->n_held++;
  }
  txn->n_held = 0;
  return KW_OK;
}

/* }====== */

/* {====== Transactions ======
 *
 * 1. All compares, also those of nested transactions, are evaluated on the state at the start: they choose the path.
 * 2. The operations on that path are checked: first all puts (lease, key), then all ranges (revision).
 * 3. The operations run in order; each sees the writes of those before it. A put that keeps the value or the lease of a
 *    key fails if an earlier operation has deleted the key; then the whole transaction is undone.
 */

/* Inserts the operations of the branch after their transaction, and then its end. */
static int take_branch(kw_txn *txn, kw_txn_item *item, bool succeeded) {
  const kw_txn_op *op = &item->op->txn;
  const kw_op *ops = succeeded ? op->success : op->failure;
  size_t n = succeeded ? op->n_success : op->n_failure;
  kw_reply *responses = kw_arena_array(txn->arena, n, sizeof *responses);
  kw_txn_item *items = kw_arena_array(txn->arena, n + 1, sizeof *items);
  if (responses == NULL || items == NULL) return KW_ERR_NO_MEMORY;
  *item->reply = (kw_reply){.kind = KW_OP_TXN};
  item->reply->txn.succeeded = succeeded;
  item->reply->txn.responses = responses;
  item->reply->txn.n = n;
  items[n] =
      (kw_txn_item){.op = item->op, .reply = item->reply, .next = item->next, .is_end = true};
  for (size_t i = 0; i < n; i++)
    items[i] = (kw_txn_item){.op = &ops[i], .reply = &responses[i], .next = &items[i + 1]};
  item->next = items;
  return KW_OK;
}

static int find_path(kw_store *store, kw_txn *txn, kw_work *work) {
  for (; txn->at != NULL; txn->at = txn->at->next) {
    bool succeeded;
    if (txn->at->op->kind != KW_OP_TXN || txn->at->is_end) continue;
    int rc = compare_all(store, txn, &txn->at->op->txn, work, &succeeded);
    if (rc == KW_OK) rc = take_branch(txn, txn->at, succeeded);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int check_put(const kw_store *store, const kw_op *op) {
  if (op->kind != KW_OP_PUT) return KW_OK;
  int rc = check_previous(store, &op->put);
  return rc != KW_OK ? rc : check_lease(store, &op->put);
}

static int check_range(const kw_store *store, const kw_txn *txn, const kw_op *op) {
  if (op->kind != KW_OP_RANGE || op->range.revision == 0) return KW_OK;
  return kw_read_check(store, op->range.revision, seen_by(store, txn));
}

static int check_path(const kw_store *store, const kw_txn *txn) {
  int rc = KW_OK;
  const kw_txn_item *item;
  for (item = &txn->first; item != NULL && rc == KW_OK; item = item->next)
    rc = check_put(store, item->op);
  for (item = &txn->first; item != NULL && rc == KW_OK; item = item->next)
    rc = check_range(store, txn, item->op);
  return rc;
}

/* Returns how many keys of a range exist, but 0 for a single key: looking it up would take as long as the operation. */
static int64_t keys_of(const kw_store *store, const kw_range *range) {
  return kw_range_is_point(range) ? 0 : kw_index_count(&store->index, range);
}

/* Returns the least number of kvs of a range, if at most `deleted` of all keys were deleted. */
static int64_t least_kvs(const kw_store *store, const kw_range_op *op, int64_t deleted) {
  if (op->revision > 0 || op->count_only || kw_read_is_filtered(op)) return 0;
  int64_t left = keys_of(store, &op->range) - deleted;
  if (left < 0) left = 0;
  return op->limit > 0 && op->limit < left ? op->limit : left;
}

/* Estimates from the counts of the index, before anything is read, whether the reply will exceed the limit, or the
 * operations the work of this turn. Earlier operations may delete keys that the index counts, and add others, which are
 * ignored. Returns KW_OK if neither is certain, KW_ERR_TOO_MANY_REQUESTS or KW_UNFINISHED. */
static int look_ahead(const kw_store *store, const kw_txn *txn, const kw_work *work) {
  int64_t kvs = 0, visits = 0, deleted = 0;
  if (txn->limit == SIZE_MAX || seen_by(store, txn) != kw_store_seen_revision(store)) return KW_OK;
  const kw_txn_item *item = txn->phase == KW_TXN_RUN ? txn->at : &txn->first;
  for (; item != NULL; item = item->next) {
    const kw_op *op = item->op;
    int64_t least = 0;
    if (op->kind == KW_OP_RANGE) least = least_kvs(store, &op->range, deleted);
    if (op->kind == KW_OP_DELETE) {
      int64_t keys = keys_of(store, &op->delete.range);
      least = keys > deleted ? keys - deleted : 0;
      deleted += kw_range_is_point(&op->delete.range) ? 1 : keys;
    }
    visits += least;
    if (op->kind == KW_OP_RANGE || (op->kind == KW_OP_DELETE && op->delete.prev_kv)) kvs += least;
    if ((uint64_t)kvs > txn->limit / KW_KEYVALUE_LEAST) return KW_ERR_TOO_MANY_REQUESTS;
  }
  bool is_of_one_turn = txn->on_record == NULL;
  return visits > work->left && is_of_one_turn ? KW_UNFINISHED : KW_OK;
}

/* Adds the records of a page to the reply of a range. */
static int add_page(kw_txn *txn, const kw_txn_item *item, const kw_records *page) {
  for (size_t i = 0; i < page->n; i++) {
    const kw_blob *record = page->items[i];
    size_t len = item->op->range.keys_only ? kw_keyvalue_key(record).len : record->len;
    int rc = gather(txn, item, record, len);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int begin_range(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  int rc = begin_read(store, txn, &item->op->range, work);
  if (rc != KW_OK) return rc;
  *item->reply = (kw_reply){.kind = KW_OP_RANGE, .revision = seen_by(store, txn)};
  item->reply->range.keys_only = item->op->range.keys_only;
  return KW_OK;
}

/* Reads a single key, which is quick. */
static int run_point(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_reply *reply = item->reply;
  int rc = kw_read_range(store, &item->op->range, seen_by(store, txn), work, txn->arena, reply);
  bool is_found = rc == KW_OK && reply->range.kvs.n > 0;
  const kw_blob *record = is_found ? reply->range.kvs.items[0] : NULL;
  kw_work_spend(work, is_found ? record->len : item->op->range.range.key.len);
  if (!is_found) return rc;
  reply->range.kvs = (kw_records){0};
  return gather(txn, item, record, record->len);
}

static int run_range(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_records page;
  if (kw_range_is_point(&item->op->range.range)) return run_point(store, txn, item, work);
  int rc = txn->is_inside ? KW_OK : begin_range(store, txn, item, work);
  if (rc != KW_OK) return rc;
  rc = kw_read_step_inside(store, &txn->read, arena_of_pages(txn), work, &page);
  if (rc < 0) return rc;
  int added = add_page(txn, item, &page);
  if (added != KW_OK || rc == KW_UNFINISHED) return added != KW_OK ? added : rc;
  item->reply->range.count = txn->read.count;
  item->reply->range.more = txn->read.more;
  end_read(txn);
  return KW_OK;
}

static int run_one(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  switch (item->op->kind) {
    case KW_OP_RANGE: return run_range(store, txn, item, work);
    case KW_OP_PUT: return run_put(store, txn, item, work);
    case KW_OP_DELETE: return run_delete(store, txn, item, work);
    case KW_OP_TXN:
      if (item->is_end) item->reply->revision = seen_by(store, txn);
      return KW_OK;
    case KW_OP_NONE: break;
  }
  return KW_ERR_KEY_NOT_FOUND;
}

static int run_path(kw_store *store, kw_txn *txn, kw_work *work) {
  while (txn->at != NULL) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    int rc = run_one(store, txn, txn->at, work);
    if (rc != KW_OK) return rc;
    txn->at = txn->at->next;
  }
  return KW_OK;
}

/* }====== */

/* {====== Leases ====== */

static int delete_keys(kw_store *store, kw_txn *txn, kw_work *work) {
  for (; txn->n_deleted < txn->list.sorter.n; txn->n_deleted++) {
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
    kw_key_history *key = (void *)(intptr_t)txn->list.sorter.items[txn->n_deleted].id;
    int rc = kw_write_delete(store, next_revision(store), key);
    if (rc != KW_OK) return rc;
    kw_work_spend(work, kw_key_history_key(key).len);
  }
  store->counting.deletes += txn->n_deleted;
  return kw_write_revoke(store, txn->lease);
}

/* }====== */

static void clear(kw_txn *txn) {
  memset(txn, 0, offsetof(kw_txn, read));
}

void kw_txn_begin(kw_txn *txn, const kw_op *op, int64_t revision, size_t limit, kw_arena *arena,
                  kw_reply *reply) {
  clear(txn);
  txn->phase = op->kind == KW_OP_TXN ? KW_TXN_FIND_PATH : KW_TXN_RUN;
  txn->revision = revision;
  txn->arena = arena;
  txn->limit = limit;
  txn->first.op = op;
  txn->first.reply = reply;
  txn->at = &txn->first;
}

void kw_txn_begin_revoke(kw_txn *txn, kw_lease *lease) {
  clear(txn);
  txn->phase = KW_TXN_LIST_KEYS;
  txn->list = (kw_lease_list){0};
  txn->lease = lease;
}

/* Counts the operations that have run, except puts, which run_put counts. An evaluation at a revision is no part of the
 * open write. */
static void count_ops(kw_store *store, const kw_txn *txn) {
  kw_op_counts *counting = &store->counting, *committed = &store->counters.ops;
  uint64_t ranges = 0, deletes = 0, txns = txn->first.op->kind == KW_OP_TXN;
  for (const kw_txn_item *item = &txn->first; item != NULL; item = item->next) {
    ranges += item->op->kind == KW_OP_RANGE;
    deletes += item->op->kind == KW_OP_DELETE;
  }
  counting->ranges += ranges;
  counting->deletes += deletes;
  counting->txns += txns;
  if (txn->revision == 0) return;
  committed->ranges += ranges;
  committed->txns += txns;
}

static int run_op(kw_store *store, kw_txn *txn, kw_work *work) {
  int rc = KW_OK;
  if (txn->phase == KW_TXN_FIND_PATH) {
    rc = find_path(store, txn, work);
    if (rc == KW_OK) rc = check_path(store, txn);
    if (rc != KW_OK) return rc;
    txn->phase = KW_TXN_RUN;
    txn->at = &txn->first;
    rc = look_ahead(store, txn, work);
  } else if (txn->first.op->kind == KW_OP_PUT) {
    rc = check_lease(store, &txn->first.op->put);
    if (rc == KW_OK) rc = check_previous(store, &txn->first.op->put);
  } else if (!txn->is_inside) {
    rc = look_ahead(store, txn, work);
  }
  return rc != KW_OK ? rc : run_path(store, txn, work);
}

/* True if all compares of a transaction are evaluated, and its chosen operations have not written and will not
 * write. */
static bool only_reads(const kw_store *store, const kw_txn *txn) {
  if (txn->phase != KW_TXN_RUN || txn->revision != 0 || store->open.n > 0) return false;
  for (const kw_txn_item *item = &txn->first; item != NULL; item = item->next) {
    if (item->op->kind != KW_OP_RANGE && item->op->kind != KW_OP_TXN) return false;
  }
  return true;
}

int kw_txn_run(kw_store *store, kw_txn *txn, kw_work *work) {
  if (txn->phase < KW_TXN_LIST_KEYS) {
    int rc = run_op(store, txn, work);
    if (rc == KW_OK && txn->first.op->kind != KW_OP_PUT) count_ops(store, txn);
    return rc == KW_UNFINISHED && only_reads(store, txn) ? KW_ONLY_READS : rc;
  }
  if (txn->phase == KW_TXN_LIST_KEYS) {
    int rc = kw_lease_list_keys(txn->lease, &txn->list, work);
    if (rc != KW_OK) return rc;
    txn->phase = KW_TXN_DELETE;
  }
  return delete_keys(store, txn, work);
}

int kw_reply_retain(kw_reply *reply, kw_arena *arena, const kw_blob *record) {
  int rc = add_record(reply, arena, record);
  if (rc == KW_OK) kw_blob_retain((kw_blob *)record);
  return rc;
}

static void release_all(const kw_records *records) {
  for (size_t i = 0; i < records->n; i++) kw_blob_release((kw_blob *)records->items[i]);
}

void kw_reply_release(const kw_reply *reply) {
  if (reply->kind == KW_OP_RANGE) release_all(&reply->range.kvs);
  if (reply->kind == KW_OP_DELETE) release_all(&reply->delete.prev_kvs);
  if (reply->kind == KW_OP_PUT && reply->put.prev_kv != NULL)
    kw_blob_release((kw_blob *)reply->put.prev_kv);
  for (size_t i = 0; reply->kind == KW_OP_TXN && i < reply->txn.n; i++)
    kw_reply_release(&reply->txn.responses[i]);
}

void kw_txn_drop(kw_txn *txn) {
  if (txn->is_reading) kw_read_drop(&txn->read);
  if (txn->phase >= KW_TXN_LIST_KEYS) kw_sorter_drop(&txn->list.sorter);
  if (txn->on_record != NULL) kw_arena_drop(&txn->pages);
}
