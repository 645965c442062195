/* SPDX-License-Identifier: MIT */
#include "store/txn.h"

#include "codec/keyvalue.h"
#include "store/read.h"
#include "store/write.h"

/* {====== Put and delete ====== */

static int64_t next_revision(const kw_store *store) {
  return store->applied + 1;
}

/* The lease of a put must exist. A plain put checks its lease first, a put of a transaction its key: so does etcd. */
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

static bool encodes(const kw_txn *txn) {
  return txn->records == KW_RECORDS_ENCODED;
}

static bool retains(const kw_txn *txn) {
  return txn->records == KW_RECORDS_RETAINED;
}

static const uint8_t record_fields[] = {[KW_OP_RANGE] = 2, [KW_OP_PUT] = 2, [KW_OP_DELETE] = 3};

/* Encodes a record for the reply of an item. Returns false if memory is short. */
static bool encode(const kw_store *store, kw_txn *txn, kw_txn_item *item, const kw_blob *record) {
  const kw_op *op = item->op;
  uint8_t number = record_fields[op->kind];
  item->reply->encoded = &item->encoded;
  item->encoded.account = &txn->account;
  if (op->kind == KW_OP_RANGE && op->range.keys_only)
    return kw_keyvalue_add_bare(&item->encoded, number, record);
  bool is_own = op->kind != KW_OP_RANGE || kw_store_is_durable(store); /* a replaced record goes */
  return kw_keyvalue_add(&item->encoded, number, (kw_blob *)record, is_own);
}

/* Retains a record that is in the reply of an item, if the evaluation does that. */
static void retain(const kw_txn *txn, kw_txn_item *item, const kw_blob *record) {
  if (!retains(txn)) return;
  item->is_retained = true;
  kw_blob_retain((kw_blob *)record);
}

/* Adds a record to the reply of an item: counts the record, and encodes it, if the evaluation does. Returns KW_OK,
 * KW_ERR_NO_MEMORY, or KW_ERR_TOO_MANY_REQUESTS if the reply is beyond the limit. */
static int gather(const kw_store *store, kw_txn *txn, kw_txn_item *item, const kw_blob *record,
                  size_t len) {
  txn->bytes += len;
  if (encodes(txn) && !txn->is_abandoned && !encode(store, txn, item, record))
    return KW_ERR_NO_MEMORY;
  bool is_within = txn->bytes <= txn->limit && txn->account.held <= txn->limit;
  return is_within ? KW_OK : KW_ERR_TOO_MANY_REQUESTS;
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
  kw_work_spend(work, previous == NULL ? 0 : previous->len);
  *reply = (kw_reply){.kind = KW_OP_PUT, .revision = main};
  int rc = kw_write_put(store, main, history, &kv);
  if (rc != KW_OK || previous == NULL || !op->prev_kv) return rc;
  if (!encodes(txn)) reply->put.prev_kv = previous;
  retain(txn, item, previous);
  return gather(store, txn, item, previous, previous->len);
}

/* Borrowed records are those of one turn. */
static int begin_delete(const kw_store *store, kw_txn *txn, kw_txn_item *item,
                        const kw_work *work) {
  const kw_delete_op *op = &item->op->delete;
  *item->reply = (kw_reply){.kind = KW_OP_DELETE};
  kw_records *prev_kvs = &item->reply->delete.prev_kvs;
  if (op->prev_kv && !encodes(txn)) {
    int64_t count = kw_index_count(&store->index, &op->range);
    size_t most = (size_t)(count < work->left || retains(txn) ? count : work->left);
    prev_kvs->items = kw_arena_array(txn->arena, most, sizeof *prev_kvs->items);
    if (prev_kvs->items == NULL) return KW_ERR_NO_MEMORY;
  }
  txn->is_inside = true;
  txn->cursor = kw_index_seek(&store->index, op->range.key);
  return KW_OK;
}

static int delete_one(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_key_history *history,
                      kw_work *work) {
  size_t len = kw_key_history_key(history).len; /* which the tombstone copies */
  if (item->op->delete.prev_kv) {
    const kw_blob *record = kw_read_newest(store, history);
    kw_records *prev_kvs = &item->reply->delete.prev_kvs;
    if (!encodes(txn)) prev_kvs->items[prev_kvs->n++] = record;
    retain(txn, item, record);
    kw_work_spend(work, record->len);
    int rc = gather(store, txn, item, record, record->len);
    if (rc != KW_OK) return rc;
  }
  int rc = kw_write_delete(store, next_revision(store), history);
  if (rc != KW_OK) return rc;
  item->reply->delete.deleted++;
  kw_work_spend(work, len);
  return KW_OK;
}

/* The cursor stays good from turn to turn: until the evaluation ends, no key is added or removed. */
static int run_delete(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_key_history *history;
  int rc = txn->is_inside ? KW_OK : begin_delete(store, txn, item, work);
  if (rc != KW_OK) return rc;
  while ((history = kw_index_next_in(&txn->cursor, &item->op->delete.range)) != NULL) {
    if (kw_key_history_is_live(history)) {
      rc = delete_one(store, txn, item, history, work);
      if (rc != KW_OK) return rc;
    } else {
      kw_work_spend(work, 0);
    }
    if (!kw_work_is_left(work)) return KW_UNFINISHED;
  }
  txn->is_inside = false;
  item->reply->revision = kw_store_seen_revision(store);
  return KW_OK;
}

/* }====== */

/* {====== Compares ====== */

/* Returns a field of a key. All fields of a key that does not exist (NULL) are 0. */
static int64_t number_of(const kw_store *store, kw_compare_target target,
                         const kw_key_history *history) {
  kw_kv kv = {0};
  if (history != NULL && store->options.replica) {
    kv = kw_keyvalue_of(kw_read_newest(store, history)); /* its index lacks leases and revisions */
  } else if (history != NULL) {
    kv.version = history->state.version;
    kv.create_revision = history->state.create_revision;
    kv.lease = history->state.lease;
    kv.mod_revision = kw_key_history_last(history)->main;
  }
  switch (target) {
    case KW_COMPARE_VERSION: return kv.version;
    case KW_COMPARE_CREATE: return kv.create_revision;
    case KW_COMPARE_MOD: return kv.mod_revision;
    case KW_COMPARE_LEASE: return kv.lease;
    case KW_COMPARE_VALUE: break;
  }
  return 0;
}

static int order_of(const kw_store *store, const kw_compare *compare,
                    const kw_key_history *history) {
  if (compare->target == KW_COMPARE_VALUE) {
    const kw_change *change = kw_key_history_last(history);
    kw_kv kv = {0};
    if (!kw_keyvalue_decode(kw_log_look(store->log, kw_change_revision(change), false), &kv))
      kv = (kw_kv){0}; /* could not be read, see kw_log_failure */
    return kw_slice_compare(kv.value, compare->value);
  }
  return kw_order_signed(number_of(store, compare->target, history), compare->number);
}

/* True if the compare holds for a key, which does not exist if `history` is NULL: then its value is not compared. */
static bool holds_for(const kw_store *store, const kw_compare *compare,
                      const kw_key_history *history) {
  int order = order_of(store, compare, history);
  switch (compare->result) {
    case KW_COMPARE_EQUAL: return order == 0;
    case KW_COMPARE_GREATER: return order > 0;
    case KW_COMPARE_LESS: return order < 0;
    case KW_COMPARE_NOT_EQUAL: return order != 0;
  }
  return true; /* a result that we do not know holds, as in etcd */
}

/* True if the compare holds for a range without keys: it counts as one key with all fields zero, but a compare of its
 * value never holds. */
static bool holds_for_none(const kw_store *store, const kw_compare *compare) {
  return compare->target != KW_COMPARE_VALUE && holds_for(store, compare, NULL);
}

static bool holds_for_point(const kw_store *store, const kw_compare *compare) {
  const kw_key_history *history = kw_index_find(&store->index, compare->range.key);
  bool exists = history != NULL && kw_key_history_is_live(history);
  return exists ? holds_for(store, compare, history) : holds_for_none(store, compare);
}

/* Finds out if a compare holds for every key of its range. Returns KW_OK or KW_UNFINISHED. */
static int compare_range(const kw_store *store, kw_txn *txn, const kw_compare *compare,
                         kw_work *work, bool *holds) {
  const kw_key_history *history;
  if (!txn->is_inside) {
    txn->cursor = kw_index_seek(&store->index, compare->range.key);
    txn->is_inside = txn->is_empty = true;
  }
  *holds = true;
  while (*holds && (history = kw_index_next_in(&txn->cursor, &compare->range)) != NULL) {
    bool is_live = kw_key_history_is_live(history);
    if (is_live) *holds = holds_for(store, compare, history);
    if (is_live) txn->is_empty = false;
    kw_work_spend(work, compare->target == KW_COMPARE_VALUE ? compare->value.len : 0);
    if (*holds && !kw_work_is_left(work)) return KW_UNFINISHED;
  }
  if (txn->is_empty) *holds = holds_for_none(store, compare);
  txn->is_inside = false;
  return KW_OK;
}

/* Finds out if all compares of a transaction hold. Returns KW_OK or KW_UNFINISHED. */
static int compare_all(const kw_store *store, kw_txn *txn, const kw_txn_op *op, kw_work *work,
                       bool *succeeded) {
  *succeeded = true;
  while (*succeeded && txn->n_held < op->n_compares) {
    const kw_compare *compare = &op->compares[txn->n_held];
    if (kw_range_is_point(&compare->range)) {
      *succeeded = holds_for_point(store, compare);
    } else if (compare_range(store, txn, compare, work, succeeded) != KW_OK) {
      return KW_UNFINISHED;
    }
    txn->n_held++;
  }
  txn->n_held = 0;
  return KW_OK;
}

/* }====== */

/* {====== Transactions ======
 *
 * 1. The way through the transaction and the nested ones is found: all compares see the state at the start.
 * 2. The operations on that way are checked: first all puts (lease, key), then all ranges (revision).
 * 3. The operations run in order; each sees what those before it wrote. A put that keeps the value or the lease of a
 *    key fails where a delete before it has taken the key away; then the whole transaction is undone.
 */

/* Puts the operations of the branch behind their transaction, and its end behind them. */
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

static int find_way(const kw_store *store, kw_txn *txn, kw_work *work) {
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

static int check_range(const kw_store *store, const kw_op *op) {
  if (op->kind != KW_OP_RANGE || op->range.revision == 0) return KW_OK;
  return kw_read_check(store, op->range.revision, store->applied);
}

static int check_way(const kw_store *store, const kw_txn *txn) {
  int rc = KW_OK;
  const kw_txn_item *item;
  for (item = &txn->first; item != NULL && rc == KW_OK; item = item->next)
    rc = check_put(store, item->op);
  for (item = &txn->first; item != NULL && rc == KW_OK; item = item->next)
    rc = check_range(store, item->op);
  return rc;
}

/* Returns how many keys of a range exist. One key counts as none: looking it up would take as long as the operation. */
static int64_t keys_of(const kw_store *store, const kw_range *range) {
  return kw_range_is_point(range) ? 0 : kw_index_count(&store->index, range);
}

/* Returns how many kvs a range has at least, when at most `deleted` of all keys were deleted. */
static int64_t least_kvs(const kw_store *store, const kw_range_op *op, int64_t deleted) {
  if (op->revision > 0 || op->count_only || kw_read_is_filtered(op)) return 0;
  int64_t left = keys_of(store, &op->range) - deleted;
  if (left < 0) left = 0;
  return op->limit > 0 && op->limit < left ? op->limit : left;
}

/* Finds out by the counts of the index, before anything is read, if the reply will be beyond the limit, or the work
 * beyond that of this turn. Operations before an op may delete keys that the index counts, and add others, which do not
 * matter. Returns KW_OK if neither is known, KW_ERR_TOO_MANY_REQUESTS or KW_UNFINISHED. */
static int look_ahead(const kw_store *store, const kw_txn *txn, const kw_work *work) {
  int64_t kvs = 0, visits = 0, deleted = 0;
  if (txn->limit == SIZE_MAX) return KW_OK;
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
  bool is_of_one_turn = txn->records == KW_RECORDS_BORROWED;
  return visits > work->left && is_of_one_turn ? KW_UNFINISHED : KW_OK;
}

/* Makes the records of a page those of a reply that are not encoded, behind those that it has. */
static bool keep_page(kw_txn *txn, kw_records *kvs, const kw_records *page) {
  if (kvs->n == 0) {
    *kvs = *page;
    txn->cap_kvs = page->n;
    return true;
  }
  if (kvs->n + page->n > txn->cap_kvs) {
    size_t cap = 2 * (kvs->n + page->n);
    const kw_blob **items = kw_arena_array(txn->arena, cap, sizeof *items);
    if (items == NULL) return false;
    memcpy(items, kvs->items, kvs->n * sizeof *items);
    kvs->items = items;
    txn->cap_kvs = cap;
  }
  if (page->n > 0) memcpy(kvs->items + kvs->n, page->items, page->n * sizeof *page->items);
  kvs->n += page->n;
  return true;
}

/* Adds the records of a page to the reply of a range. */
static int add_page(const kw_store *store, kw_txn *txn, kw_txn_item *item, const kw_records *page) {
  bool has_keys_alone = item->op->range.keys_only && (encodes(txn) || !kw_store_is_durable(store));
  if (!encodes(txn) && !keep_page(txn, &item->reply->range.kvs, page)) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < page->n; i++) retain(txn, item, page->items[i]);
  for (size_t i = 0; i < page->n; i++) {
    const kw_blob *record = page->items[i];
    size_t len = has_keys_alone ? kw_keyvalue_key(record).len : record->len;
    int rc = gather(store, txn, item, record, len);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int begin_range(kw_store *store, kw_txn *txn, kw_txn_item *item) {
  int64_t current = kw_store_seen_revision(store);
  int rc = kw_read_begin_at(store, &txn->read, &item->op->range, current);
  if (rc != KW_OK) return rc;
  *item->reply = (kw_reply){.kind = KW_OP_RANGE, .revision = current};
  item->reply->range.keys_only = item->op->range.keys_only;
  txn->is_inside = txn->is_reading = true;
  return KW_OK;
}

/* One key, which is quick. */
static int run_point(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_reply *reply = item->reply;
  int64_t current = kw_store_seen_revision(store);
  int rc = kw_read_range(store, &item->op->range, current, txn->arena, reply);
  bool is_found = rc == KW_OK && reply->range.kvs.n > 0;
  const kw_blob *record = is_found ? reply->range.kvs.items[0] : NULL;
  kw_work_spend(work, is_found ? record->len : 0);
  if (!is_found) return rc;
  if (encodes(txn)) reply->range.kvs = (kw_records){0};
  retain(txn, item, record);
  return gather(store, txn, item, record, record->len);
}

static int run_range(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  kw_records page;
  if (kw_range_is_point(&item->op->range.range)) return run_point(store, txn, item, work);
  int rc = txn->is_inside ? KW_OK : begin_range(store, txn, item);
  if (rc != KW_OK) return rc;
  kw_arena *arena = encodes(txn) ? &txn->pages : txn->arena;
  if (encodes(txn)) kw_arena_reset(arena);
  rc = kw_read_step_inside(store, &txn->read, arena, work, &page);
  if (rc < 0) return rc;
  int added = add_page(store, txn, item, &page);
  if (added != KW_OK || rc == KW_UNFINISHED) return added != KW_OK ? added : rc;
  item->reply->range.count = txn->read.count;
  item->reply->range.more = txn->read.more;
  kw_read_drop(&txn->read);
  txn->is_inside = txn->is_reading = false;
  return KW_OK;
}

static int run_one(kw_store *store, kw_txn *txn, kw_txn_item *item, kw_work *work) {
  switch (item->op->kind) {
    case KW_OP_RANGE: return run_range(store, txn, item, work);
    case KW_OP_PUT: return run_put(store, txn, item, work);
    case KW_OP_DELETE: return run_delete(store, txn, item, work);
    case KW_OP_TXN:
      if (item->is_end) item->reply->revision = kw_store_seen_revision(store);
      return KW_OK;
    case KW_OP_NONE: break;
  }
  return KW_ERR_KEY_NOT_FOUND;
}

static int run_way(kw_store *store, kw_txn *txn, kw_work *work) {
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
    kw_key_history *key = kw_lease_list_key(&txn->list, txn->n_deleted);
    int rc = kw_write_delete(store, next_revision(store), key);
    if (rc != KW_OK) return rc;
    kw_work_spend(work, kw_key_history_key(key).len);
  }
  return kw_write_revoke(store, txn->lease);
}

static int list_keys(kw_txn *txn, kw_work *work) {
  int rc = kw_lease_list_keys(txn->lease, &txn->list, work);
  if (rc != KW_OK || txn->info == NULL) return rc;
  size_t n = txn->list.sorter.n;
  kw_slice *keys = kw_arena_array(txn->arena, n, sizeof *keys);
  if (keys == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) keys[i] = kw_key_history_key(kw_lease_list_key(&txn->list, i));
  txn->info->keys = keys;
  txn->info->n_keys = n;
  return KW_OK;
}

static int list_leases(const kw_store *store, kw_txn *txn, kw_work *work) {
  int rc = kw_leases_list(&store->leases, &txn->list, work);
  if (rc != KW_OK) return rc;
  size_t n = txn->list.sorter.n;
  int64_t *ids = kw_arena_array(txn->arena, n, sizeof *ids);
  if (ids == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) ids[i] = kw_lease_list_id(&txn->list, i);
  *txn->ids = (kw_lease_ids){ids, n};
  return KW_OK;
}

/* }====== */

static void clear(kw_txn *txn) {
  memset(txn, 0, offsetof(kw_txn, read));
}

void kw_txn_begin(kw_txn *txn, const kw_op *op, size_t limit, kw_arena *arena, kw_reply *reply) {
  clear(txn);
  txn->phase = op->kind == KW_OP_TXN ? KW_TXN_FIND_WAY : KW_TXN_RUN;
  txn->arena = arena;
  txn->limit = limit;
  txn->first.op = op;
  txn->first.reply = reply;
  txn->at = &txn->first;
}

static void begin_list(kw_txn *txn, kw_txn_phase phase, kw_arena *arena) {
  clear(txn);
  txn->phase = phase;
  txn->arena = arena;
  txn->list = (kw_lease_list){0};
}

void kw_txn_begin_revoke(kw_txn *txn, kw_lease *lease) {
  begin_list(txn, KW_TXN_LIST_KEYS, NULL);
  txn->lease = lease;
}

void kw_txn_begin_list_keys(kw_txn *txn, kw_lease *lease, kw_arena *arena, kw_lease_info *info) {
  begin_list(txn, KW_TXN_LIST_KEYS, arena);
  txn->lease = lease;
  txn->info = info;
}

void kw_txn_begin_list_leases(kw_txn *txn, kw_arena *arena, kw_lease_ids *ids) {
  begin_list(txn, KW_TXN_LIST_LEASES, arena);
  txn->ids = ids;
}

static int run_op(kw_store *store, kw_txn *txn, kw_work *work) {
  int rc = KW_OK;
  if (txn->phase == KW_TXN_FIND_WAY) {
    rc = find_way(store, txn, work);
    if (rc == KW_OK) rc = check_way(store, txn);
    if (rc == KW_OK) rc = look_ahead(store, txn, work);
    if (rc != KW_OK) return rc;
    txn->phase = KW_TXN_RUN;
    txn->at = &txn->first;
  } else if (txn->first.op->kind == KW_OP_PUT) {
    rc = check_lease(store, &txn->first.op->put);
    if (rc == KW_OK) rc = check_previous(store, &txn->first.op->put);
  } else if (!txn->is_inside) {
    rc = look_ahead(store, txn, work);
  }
  return rc != KW_OK ? rc : run_way(store, txn, work);
}

int kw_txn_run(kw_store *store, kw_txn *txn, kw_work *work) {
  if (txn->phase < KW_TXN_LIST_LEASES) return run_op(store, txn, work);
  if (txn->phase == KW_TXN_LIST_LEASES) return list_leases(store, txn, work);
  if (txn->phase == KW_TXN_LIST_KEYS) {
    int rc = list_keys(txn, work);
    if (rc != KW_OK || txn->info != NULL) return rc;
    txn->phase = KW_TXN_DELETE;
  }
  return delete_keys(store, txn, work);
}

void kw_txn_abandon(kw_txn *txn) {
  txn->is_abandoned = true;
  txn->discarded.account = &txn->account;
  for (kw_txn_item *item = &txn->first; item != NULL; item = item->next)
    kw_chain_append(&txn->discarded, &item->encoded);
}

bool kw_txn_free_discarded(kw_txn *txn, kw_work *work) {
  while (txn->discarded.first != NULL) {
    if (!kw_work_is_left(work)) return false;
    kw_work_spend(work, kw_chain_drop_first(&txn->discarded));
  }
  return true;
}

void kw_txn_give(kw_txn *txn) {
  for (kw_txn_item *item = &txn->first; item != NULL; item = item->next) item->is_retained = false;
}

static void release_all(const kw_records *records) {
  for (size_t i = 0; i < records->n; i++) kw_blob_release((kw_blob *)records->items[i]);
}

static void release_records(kw_txn *txn) {
  for (kw_txn_item *item = &txn->first; item != NULL; item = item->next) {
    const kw_reply *reply = item->reply;
    if (!item->is_retained) continue;
    if (reply->kind == KW_OP_PUT) kw_blob_release((kw_blob *)reply->put.prev_kv);
    if (reply->kind == KW_OP_DELETE) release_all(&reply->delete.prev_kvs);
    if (reply->kind == KW_OP_RANGE) release_all(&reply->range.kvs);
  }
}

static void drop_encoded(kw_txn *txn) {
  kw_arena_drop(&txn->pages);
  kw_chain_drop(&txn->discarded);
  for (kw_txn_item *item = &txn->first; item != NULL; item = item->next)
    kw_chain_drop(&item->encoded);
}

void kw_txn_drop(kw_txn *txn) {
  if (txn->is_reading) kw_read_drop(&txn->read);
  if (txn->phase >= KW_TXN_LIST_LEASES) kw_lease_list_drop(&txn->list);
  if (retains(txn)) release_records(txn);
  if (encodes(txn)) drop_encoded(txn);
}
