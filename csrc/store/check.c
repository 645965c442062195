/* SPDX-License-Identifier: MIT */
#include "store/check.h"

#include "codec/messages.h"
#include "store/store.h"

#define PUT_COST 256       /* bytes that etcd adds to the key and the value of a put */
#define LEAST_WEIGHT 16384 /* every transaction may have this weight: a few milliseconds */
#define PUT_FIELDS 64      /* more than a PutRequest without the bytes of key and value */

typedef struct branch {
  const kw_op *ops;
  size_t n;
} branch;

static branch success_of(const kw_txn_op *txn) {
  return (branch){txn->success, txn->n_success};
}

static branch failure_of(const kw_txn_op *txn) {
  return (branch){txn->failure, txn->n_failure};
}

/* {====== Single operations ====== */

/* The limits of a transaction. */
typedef struct budget {
  int64_t ops; /* length of each list */
  int64_t depth;
  int64_t *weight; /* of the whole transaction, see kw_check_weight */
} budget;

static int check_txn(const kw_txn_op *txn, budget limits);

static int check_range(const kw_range_op *op) {
  if (op->range.key.len == 0) return KW_ERR_EMPTY_KEY;
  if (op->sort_order > KW_SORT_DESCEND || op->sort_target > KW_SORT_VALUE)
    return KW_ERR_INVALID_SORT;
  return KW_OK;
}

static int check_put(const kw_put_op *op) {
  if (op->key.len == 0) return KW_ERR_EMPTY_KEY;
  if (op->ignore_value && op->value.len > 0) return KW_ERR_VALUE_PROVIDED;
  if (op->ignore_lease && op->lease != 0) return KW_ERR_LEASE_PROVIDED;
  return KW_OK;
}

static int check_single(const kw_op *op, budget limits) {
  switch (op->kind) {
    case KW_OP_RANGE: return check_range(&op->range);
    case KW_OP_PUT: return check_put(&op->put);
    case KW_OP_DELETE: return op->delete.range.key.len == 0 ? KW_ERR_EMPTY_KEY : KW_OK;
    case KW_OP_TXN: return check_txn(&op->txn, limits);
    case KW_OP_NONE: break;
  }
  return KW_ERR_KEY_NOT_FOUND;
}

static int check_branch(branch b, budget limits) {
  int rc = KW_OK;
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) rc = check_single(&b.ops[i], limits);
  return rc;
}

static int64_t longest_list(const kw_txn_op *txn) {
  size_t n = txn->n_compares;
  if (n < txn->n_success) n = txn->n_success;
  if (n < txn->n_failure) n = txn->n_failure;
  return (int64_t)n;
}

/* The limit for a nested transaction is that of its parent minus the longest list of the parent. */
static int check_txn(const kw_txn_op *txn, budget limits) {
  int64_t n = longest_list(txn);
  *limits.weight -= limits.depth * (int64_t)(txn->n_compares + txn->n_success + txn->n_failure);
  if (n > limits.ops || *limits.weight < 0) return KW_ERR_TOO_MANY_OPS;
  limits.ops -= n;
  limits.depth++;
  for (size_t i = 0; i < txn->n_compares; i++) {
    if (txn->compares[i].range.key.len == 0) return KW_ERR_EMPTY_KEY;
  }
  int rc = check_branch(success_of(txn), limits);
  return rc != KW_OK ? rc : check_branch(failure_of(txn), limits);
}

/* }====== */

/* {====== Keys written twice ======
 *
 * A list of operations must not put a key twice, nor put a key that it deletes. The lists of nested transactions count,
 * too. The rules are etcd's, which examines a list in this order: first its deletes; then its nested transactions, one
 * after the other; then its puts. The two branches of a transaction do not conflict with each other, since only one of
 * them runs. Two exceptions follow from etcd's behaviour:
 *   - a delete in a nested transaction does not conflict with a put in a nested transaction before it;
 *   - a delete of all keys from `key` on conflicts with no put: etcd takes its end, "\0", for a key below all others,
 *     and so its range for an empty one.
 *
 * The check walks the operations in that order. Each put and each delete claims the keys that it writes; a put fails if
 * its key is claimed already. A claim refers to positions in the sorted list of all keys that are put. Puts are counted
 * by position; deletes, which claim intervals, in a Fenwick tree. The claims of a success branch are removed while the
 * failure branch is walked.
 */

/* The keys that one operation writes. */
typedef struct claim {
  bool is_put;
  size_t from;  /* position of the key of a put, or of the first key of a delete */
  size_t until; /* position after the last key of a delete */
} claim;

typedef struct claims {
  kw_slice *keys; /* all keys that are put, sorted, each once */
  size_t n_keys;
  uint32_t *puts; /* by position: number of puts */
  /* Fenwick tree, counted from 1: number of deletes, as differences between positions. */
  uint32_t *deletes;
  claim *done; /* all claims, in the order in which they were made */
  size_t n_done;
} claims;

static size_t count_ops(branch b, kw_op_kind kind) {
  size_t n = 0;
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind == kind) n++;
    if (b.ops[i].kind != KW_OP_TXN) continue;
    n += count_ops(success_of(&b.ops[i].txn), kind) + count_ops(failure_of(&b.ops[i].txn), kind);
  }
  return n;
}

static void gather_keys(claims *c, branch b) {
  for (size_t i = 0; i < b.n; i++) {
    const kw_op *op = &b.ops[i];
    if (op->kind == KW_OP_PUT) c->keys[c->n_keys++] = op->put.key;
    if (op->kind != KW_OP_TXN) continue;
    gather_keys(c, success_of(&op->txn));
    gather_keys(c, failure_of(&op->txn));
  }
}

static int by_bytes(const void *a, const void *b) {
  return kw_slice_compare(*(const kw_slice *)a, *(const kw_slice *)b);
}

static void sort_keys(claims *c) {
  size_t n = 0;
  qsort(c->keys, c->n_keys, sizeof *c->keys, by_bytes);
  for (size_t i = 0; i < c->n_keys; i++) {
    if (n == 0 || !kw_slice_equal(c->keys[n - 1], c->keys[i])) c->keys[n++] = c->keys[i];
  }
  c->n_keys = n;
}

/* Returns the position of the first key that is not below `key`. */
static size_t position_of(const claims *c, kw_slice key) {
  size_t low = 0, high = c->n_keys;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_slice_compare(c->keys[mid], key) < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

/* Adds `by` to the number of deletes at every position from `from` on. */
static void tree_add(claims *c, size_t from, uint32_t by) {
  for (size_t i = from + 1; i <= c->n_keys; i += i & -i) c->deletes[i] += by;
}

static bool is_deleted(const claims *c, size_t at) {
  uint32_t sum = 0;
  for (size_t i = at + 1; i > 0; i -= i & -i) sum += c->deletes[i];
  return sum > 0;
}

/* Adds `by` to the counts of a claim: 1, or (uint32_t)-1 to remove the claim. Unsigned counts may wrap. */
static void count_claim(claims *c, const claim *one, uint32_t by) {
  if (one->is_put) {
    c->puts[one->from] += by;
  } else {
    tree_add(c, one->from, by);
    tree_add(c, one->until, -by);
  }
}

static void count_claims(claims *c, size_t from, size_t until, uint32_t by) {
  for (size_t i = from; i < until; i++) count_claim(c, &c->done[i], by);
}

static void add_claim(claims *c, claim one) {
  c->done[c->n_done++] = one;
  count_claim(c, &one, 1);
}

static void claim_delete(claims *c, const kw_range *range) {
  claim one = {.from = position_of(c, range->key)};
  if (kw_range_is_point(range)) {
    bool is_put = one.from < c->n_keys && kw_slice_equal(c->keys[one.from], range->key);
    one.until = one.from + is_put;
  } else {
    one.until = position_of(c, range->end);
  }
  if (one.from < one.until) add_claim(c, one);
}

static int claim_put(claims *c, kw_slice key) {
  size_t at = position_of(c, key);
  if (c->puts[at] > 0 || is_deleted(c, at)) return KW_ERR_DUPLICATE_KEY;
  add_claim(c, (claim){.is_put = true, .from = at});
  return KW_OK;
}

static int claim_branch(claims *c, branch b);

static int claim_txn(claims *c, const kw_txn_op *txn) {
  size_t first = c->n_done;
  int rc = claim_branch(c, success_of(txn));
  size_t second = c->n_done;
  count_claims(c, first, second, (uint32_t)-1);
  if (rc == KW_OK) rc = claim_branch(c, failure_of(txn));
  count_claims(c, first, second, 1);
  return rc;
}

static int claim_branch(claims *c, branch b) {
  int rc = KW_OK;
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind == KW_OP_DELETE) claim_delete(c, &b.ops[i].delete.range);
  }
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) {
    if (b.ops[i].kind == KW_OP_TXN) rc = claim_txn(c, &b.ops[i].txn);
  }
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) {
    if (b.ops[i].kind == KW_OP_PUT) rc = claim_put(c, b.ops[i].put.key);
  }
  return rc;
}

static int check_twice(branch b, kw_arena *arena) {
  size_t n_puts = count_ops(b, KW_OP_PUT), n_deletes = count_ops(b, KW_OP_DELETE);
  if (n_puts == 0 || n_puts + n_deletes == 1) return KW_OK;
  claims c = {.keys = kw_arena_array(arena, n_puts, sizeof *c.keys),
              .puts = kw_arena_array(arena, n_puts, sizeof *c.puts),
              .deletes = kw_arena_array(arena, n_puts + 1, sizeof *c.deletes),
              .done = kw_arena_array(arena, n_puts + n_deletes, sizeof *c.done)};
  if (c.keys == NULL || c.puts == NULL || c.deletes == NULL || c.done == NULL)
    return KW_ERR_NO_MEMORY;
  gather_keys(&c, b);
  sort_keys(&c);
  return claim_branch(&c, b);
}

/* }====== */

int64_t kw_check_weight(int64_t max_txn_ops) {
  if (max_txn_ops > INT64_MAX / 4) return INT64_MAX;
  return max_txn_ops > LEAST_WEIGHT / 4 ? 4 * max_txn_ops : LEAST_WEIGHT;
}

int kw_check_op(const kw_op *op, int64_t max_txn_ops, kw_arena *arena) {
  int64_t weight = kw_check_weight(max_txn_ops);
  int rc = check_single(op, (budget){.ops = max_txn_ops, .depth = 1, .weight = &weight});
  if (rc != KW_OK || op->kind != KW_OP_TXN) return rc;
  rc = check_twice(success_of(&op->txn), arena);
  return rc != KW_OK ? rc : check_twice(failure_of(&op->txn), arena);
}

static bool branch_writes(branch b) {
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind != KW_OP_RANGE) return true;
  }
  return false;
}

bool kw_check_is_write(const kw_op *op) {
  if (op->kind != KW_OP_TXN) return op->kind != KW_OP_RANGE;
  return branch_writes(success_of(&op->txn)) || branch_writes(failure_of(&op->txn));
}

static bool branch_only_reads(branch b) {
  for (size_t i = 0; i < b.n; i++) {
    if (!kw_store_only_reads(&b.ops[i])) return false;
  }
  return true;
}

bool kw_store_only_reads(const kw_op *op) {
  if (op->kind != KW_OP_TXN) return op->kind == KW_OP_RANGE;
  return branch_only_reads(success_of(&op->txn)) && branch_only_reads(failure_of(&op->txn));
}

static int64_t branch_cost(branch b) {
  int64_t sum = 0;
  for (size_t i = 0; i < b.n; i++) sum += kw_check_cost(&b.ops[i]);
  return sum;
}

int64_t kw_check_cost(const kw_op *op) {
  if (op->kind == KW_OP_PUT) return PUT_COST + (int64_t)(op->put.key.len + op->put.value.len);
  if (op->kind != KW_OP_TXN) return 0;
  int64_t success = branch_cost(success_of(&op->txn)), failure = branch_cost(failure_of(&op->txn));
  return success > failure ? success : failure;
}

/* {====== Size as a message ====== */

static int64_t message_size(const kw_op *op) {
  switch (op->kind) {
    case KW_OP_RANGE: return (int64_t)kw_message_size(&kw_msg_range_request, &op->range);
    case KW_OP_PUT: return (int64_t)kw_message_size(&kw_msg_put_request, &op->put);
    case KW_OP_DELETE: return (int64_t)kw_message_size(&kw_msg_delete_range_request, &op->delete);
    case KW_OP_TXN: return (int64_t)kw_message_size(&kw_msg_txn_request, &op->txn);
    case KW_OP_NONE: break;
  }
  return 0;
}

/* Most puts are far below the limit, so their exact size is not needed. */
static bool is_small_put(const kw_op *op, int64_t bytes) {
  return op->kind == KW_OP_PUT &&
         (int64_t)(op->put.key.len + op->put.value.len) + PUT_FIELDS <= bytes;
}

bool kw_check_exceeds(const kw_op *op, int64_t bytes) {
  return !is_small_put(op, bytes) && message_size(op) > bytes;
}

/* }====== */
