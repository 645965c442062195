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

static int run_put(kw_store *store, const kw_put_op *op, kw_reply *reply) {
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
  *reply = (kw_reply){.kind = KW_OP_PUT, .revision = main};
  reply->put.prev_kv = op->prev_kv ? previous : NULL;
  return kw_write_put(store, main, history, &kv);
}

static int run_delete(kw_store *store, const kw_delete_op *op, kw_arena *arena, kw_reply *reply) {
  kw_index_cursor cursor = kw_index_seek(&store->index, op->range.key);
  kw_key_history *history;
  *reply = (kw_reply){.kind = KW_OP_DELETE};
  kw_records *prev_kvs = &reply->delete.prev_kvs;
  if (op->prev_kv) {
    size_t count = (size_t)kw_index_count(&store->index, &op->range);
    prev_kvs->items = kw_arena_array(arena, count, sizeof *prev_kvs->items);
    if (prev_kvs->items == NULL) return KW_ERR_NO_MEMORY;
  }
  while ((history = kw_index_next_in(&cursor, &op->range)) != NULL) {
    if (!kw_key_history_is_live(history)) continue;
    if (op->prev_kv) prev_kvs->items[prev_kvs->n++] = kw_read_newest(store, history);
    int rc = kw_write_delete(store, next_revision(store), history);
    if (rc != KW_OK) return rc;
    reply->delete.deleted++;
  }
  reply->revision = kw_store_seen_revision(store);
  return KW_OK;
}

int kw_txn_delete_lease(kw_store *store, const kw_lease *lease, kw_arena *arena) {
  kw_key_history **keys;
  size_t n;
  if (!kw_lease_list(lease, arena, &keys, &n)) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) {
    int rc = kw_write_delete(store, next_revision(store), keys[i]);
    if (rc != KW_OK) return rc;
  }
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
    kw_kv kv = kw_keyvalue_of(kw_read_newest(store, history));
    return kw_slice_compare(kv.value, compare->value);
  }
  int64_t x = number_of(store, compare->target, history);
  return (x > compare->number) - (x < compare->number);
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

/* True if the compare holds for every key of the range. A range without keys counts as one key with all fields zero,
 * but a compare of its value never holds. */
static bool holds(const kw_store *store, const kw_compare *compare) {
  kw_index_cursor cursor = kw_index_seek(&store->index, compare->range.key);
  const kw_key_history *history;
  bool is_empty = true;
  while ((history = kw_index_next_in(&cursor, &compare->range)) != NULL) {
    if (!kw_key_history_is_live(history)) continue;
    if (!holds_for(store, compare, history)) return false;
    is_empty = false;
  }
  if (!is_empty) return true;
  return compare->target != KW_COMPARE_VALUE && holds_for(store, compare, NULL);
}

static bool all_hold(const kw_store *store, const kw_txn_op *txn) {
  for (size_t i = 0; i < txn->n_compares; i++) {
    if (!holds(store, &txn->compares[i])) return false;
  }
  return true;
}

/* }====== */

/* {====== Transactions ======
 *
 * 1. The way through the transaction and the nested ones is found: all compares see the state at the start.
 * 2. The operations on that way are checked: first all puts (lease, key), then all ranges (revision).
 * 3. The operations run in order; each sees what those before it wrote. A put that keeps the value or the lease of a
 *    key fails where a delete before it has taken the key away; then the whole transaction is undone.
 */

/* The branches taken, one for each transaction on the way, in the order in which they are met. */
typedef struct way {
  bool *taken;
  size_t n;
  size_t at; /* while it is followed */
} way;

typedef struct branch {
  const kw_op *ops;
  size_t n;
} branch;

static branch branch_of(const kw_txn_op *txn, bool succeeded) {
  return succeeded ? (branch){txn->success, txn->n_success}
                   : (branch){txn->failure, txn->n_failure};
}

static size_t count_txns(const kw_txn_op *txn) {
  size_t n = 1;
  for (size_t i = 0; i < txn->n_success; i++) {
    if (txn->success[i].kind == KW_OP_TXN) n += count_txns(&txn->success[i].txn);
  }
  for (size_t i = 0; i < txn->n_failure; i++) {
    if (txn->failure[i].kind == KW_OP_TXN) n += count_txns(&txn->failure[i].txn);
  }
  return n;
}

static void find_way(const kw_store *store, const kw_txn_op *txn, way *w) {
  bool succeeded = w->taken[w->n++] = all_hold(store, txn);
  branch b = branch_of(txn, succeeded);
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind == KW_OP_TXN) find_way(store, &b.ops[i].txn, w);
  }
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

typedef int (*check_fn)(const kw_store *store, const kw_op *op);

static int check_along(const kw_store *store, const kw_txn_op *txn, way *w, check_fn check) {
  branch b = branch_of(txn, w->taken[w->at++]);
  for (size_t i = 0; i < b.n; i++) {
    const kw_op *op = &b.ops[i];
    int rc = op->kind == KW_OP_TXN ? check_along(store, &op->txn, w, check) : check(store, op);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

static int run_along(kw_store *store, const kw_txn_op *txn, way *w, kw_arena *arena,
                     kw_reply *reply);

static int run_one(kw_store *store, const kw_op *op, way *w, kw_arena *arena, kw_reply *reply) {
  switch (op->kind) {
    case KW_OP_RANGE:
      return kw_read_range(store, &op->range, kw_store_seen_revision(store), arena, reply);
    case KW_OP_PUT: return run_put(store, &op->put, reply);
    case KW_OP_DELETE: return run_delete(store, &op->delete, arena, reply);
    case KW_OP_TXN: return run_along(store, &op->txn, w, arena, reply);
    case KW_OP_NONE: break;
  }
  return KW_ERR_KEY_NOT_FOUND;
}

static int run_along(kw_store *store, const kw_txn_op *txn, way *w, kw_arena *arena,
                     kw_reply *reply) {
  bool succeeded = w->taken[w->at++];
  branch b = branch_of(txn, succeeded);
  *reply = (kw_reply){.kind = KW_OP_TXN};
  kw_reply *responses = kw_arena_array(arena, b.n, sizeof *responses);
  if (responses == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < b.n; i++) {
    int rc = run_one(store, &b.ops[i], w, arena, &responses[i]);
    if (rc != KW_OK) return rc;
  }
  reply->txn.succeeded = succeeded;
  reply->txn.responses = responses;
  reply->txn.n = b.n;
  reply->revision = kw_store_seen_revision(store);
  return KW_OK;
}

static int run_txn(kw_store *store, const kw_txn_op *txn, kw_arena *arena, kw_reply *reply) {
  way w = {.taken = kw_arena_array(arena, count_txns(txn), sizeof *w.taken)};
  if (w.taken == NULL) return KW_ERR_NO_MEMORY;
  find_way(store, txn, &w);
  int rc = check_along(store, txn, &w, check_put);
  w.at = 0;
  if (rc == KW_OK) rc = check_along(store, txn, &w, check_range);
  w.at = 0;
  return rc != KW_OK ? rc : run_along(store, txn, &w, arena, reply);
}

/* }====== */

int kw_txn_run(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply) {
  if (op->kind == KW_OP_TXN) return run_txn(store, &op->txn, arena, reply);
  if (op->kind == KW_OP_PUT) {
    int rc = check_lease(store, &op->put);
    if (rc == KW_OK) rc = check_previous(store, &op->put);
    if (rc != KW_OK) return rc;
  }
  if (op->kind == KW_OP_RANGE)
    return kw_read_range(store, &op->range, store->revision, arena, reply);
  return run_one(store, op, NULL, arena, reply);
}
