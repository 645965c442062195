/* SPDX-License-Identifier: MIT */
#include "store/check.h"

#include "codec/messages.h"
#include "model/error.h"

#define PUT_COST 256  /* what etcd adds to the key and the value of a put */
#define PUT_FIELDS 64 /* more than everything in a PutRequest but the bytes of its key and value */

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

static int check_txn(const kw_txn_op *txn, int64_t budget);

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

static int check_single(const kw_op *op, int64_t budget) {
  switch (op->kind) {
    case KW_OP_RANGE: return check_range(&op->range);
    case KW_OP_PUT: return check_put(&op->put);
    case KW_OP_DELETE: return op->delete.range.key.len == 0 ? KW_ERR_EMPTY_KEY : KW_OK;
    case KW_OP_TXN: return check_txn(&op->txn, budget);
    case KW_OP_NONE: break;
  }
  return KW_ERR_KEY_NOT_FOUND;
}

static int check_branch(branch b, int64_t budget) {
  int rc = KW_OK;
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) rc = check_single(&b.ops[i], budget);
  return rc;
}

static int64_t widest(const kw_txn_op *txn) {
  size_t n = txn->n_compares;
  if (n < txn->n_success) n = txn->n_success;
  if (n < txn->n_failure) n = txn->n_failure;
  return (int64_t)n;
}

/* Nested transactions share what the widest list of their parent has left. */
static int check_txn(const kw_txn_op *txn, int64_t budget) {
  int64_t n = widest(txn);
  if (n > budget) return KW_ERR_TOO_MANY_OPS;
  for (size_t i = 0; i < txn->n_compares; i++) {
    if (txn->compares[i].range.key.len == 0) return KW_ERR_EMPTY_KEY;
  }
  int rc = check_branch(success_of(txn), budget - n);
  return rc != KW_OK ? rc : check_branch(failure_of(txn), budget - n);
}

/* }====== */

/* {====== Keys written twice ======
 *
 * A list of operations may not put a key twice, nor put a key that it deletes. Nested lists count, in etcd's
 * order: the deletes of this list come first; then the nested transactions one after the other, whose
 * two branches do not see each other; the puts of this list come last. So a nested delete is not held against the
 * puts of nested transactions before it. A delete without an end is held against no put: etcd takes its end, "\0",
 * for a key below all others, and its range for an empty one.
 *
 * A walk in that order marks what was written so far, over the put keys in sorted order: puts by key, deletes as
 * intervals of a Fenwick tree. The marks of one branch are taken back while the other is walked.
 */

typedef struct mark {
  bool is_put;
  size_t from; /* the key of a put, or the first key of a delete */
  size_t until;
} mark;

typedef struct marks {
  kw_slice *keys; /* all keys that are put anywhere, sorted */
  size_t n_keys;
  uint32_t *puts;    /* by key: marked puts */
  uint32_t *deletes; /* the tree, from 1: marked deletes that cover a key */
  mark *done;        /* what is marked, in order */
  size_t n_done;
} marks;

static size_t count_ops(branch b, kw_op_kind kind) {
  size_t n = 0;
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind == kind) n++;
    if (b.ops[i].kind != KW_OP_TXN) continue;
    n += count_ops(success_of(&b.ops[i].txn), kind) + count_ops(failure_of(&b.ops[i].txn), kind);
  }
  return n;
}

static void gather_keys(marks *m, branch b) {
  for (size_t i = 0; i < b.n; i++) {
    const kw_op *op = &b.ops[i];
    if (op->kind == KW_OP_PUT) m->keys[m->n_keys++] = op->put.key;
    if (op->kind != KW_OP_TXN) continue;
    gather_keys(m, success_of(&op->txn));
    gather_keys(m, failure_of(&op->txn));
  }
}

static int by_bytes(const void *a, const void *b) {
  return kw_slice_compare(*(const kw_slice *)a, *(const kw_slice *)b);
}

/* The first key that is not below `key`. */
static size_t key_from(const marks *m, kw_slice key) {
  size_t low = 0, high = m->n_keys;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_slice_compare(m->keys[mid], key) < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

static void tree_add(marks *m, size_t from, uint32_t by) {
  for (size_t i = from + 1; i <= m->n_keys; i += i & -i) m->deletes[i] += by;
}

static bool is_deleted(const marks *m, size_t key) {
  uint32_t sum = 0;
  for (size_t i = key + 1; i > 0; i -= i & -i) sum += m->deletes[i];
  return sum > 0;
}

/* Counts unsigned, so that taking back is adding -1. */
static void apply_mark(marks *m, const mark *k, uint32_t by) {
  if (k->is_put) {
    m->puts[k->from] += by;
  } else {
    tree_add(m, k->from, by);
    tree_add(m, k->until, -by);
  }
}

static void apply_marks(marks *m, size_t from, size_t until, uint32_t by) {
  for (size_t i = from; i < until; i++) apply_mark(m, &m->done[i], by);
}

static void add_mark(marks *m, mark k) {
  m->done[m->n_done++] = k;
  apply_mark(m, &k, 1);
}

static void mark_delete(marks *m, const kw_range *range) {
  mark k = {.from = key_from(m, range->key)};
  if (kw_range_is_point(range)) {
    for (k.until = k.from; k.until < m->n_keys; k.until++) {
      if (!kw_slice_equal(m->keys[k.until], range->key)) break;
    }
  } else {
    k.until = key_from(m, range->end);
  }
  if (k.from < k.until) add_mark(m, k);
}

static int mark_put(marks *m, kw_slice key) {
  size_t at = key_from(m, key); /* of equal keys the first stands for all */
  if (m->puts[at] > 0 || is_deleted(m, at)) return KW_ERR_DUPLICATE_KEY;
  add_mark(m, (mark){.is_put = true, .from = at});
  return KW_OK;
}

static int mark_branch(marks *m, branch b);

static int mark_txn(marks *m, const kw_txn_op *txn) {
  size_t first = m->n_done;
  int rc = mark_branch(m, success_of(txn));
  size_t second = m->n_done;
  apply_marks(m, first, second, (uint32_t)-1);
  if (rc == KW_OK) rc = mark_branch(m, failure_of(txn));
  apply_marks(m, first, second, 1);
  return rc;
}

static int mark_branch(marks *m, branch b) {
  int rc = KW_OK;
  for (size_t i = 0; i < b.n; i++) {
    if (b.ops[i].kind == KW_OP_DELETE) mark_delete(m, &b.ops[i].delete.range);
  }
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) {
    if (b.ops[i].kind == KW_OP_TXN) rc = mark_txn(m, &b.ops[i].txn);
  }
  for (size_t i = 0; i < b.n && rc == KW_OK; i++) {
    if (b.ops[i].kind == KW_OP_PUT) rc = mark_put(m, b.ops[i].put.key);
  }
  return rc;
}

static int check_twice(branch b, kw_arena *arena) {
  size_t n_puts = count_ops(b, KW_OP_PUT), n_deletes = count_ops(b, KW_OP_DELETE);
  if (n_puts == 0 || n_puts + n_deletes == 1) return KW_OK;
  marks m = {.keys = kw_arena_array(arena, n_puts, sizeof *m.keys),
             .puts = kw_arena_array(arena, n_puts, sizeof *m.puts),
             .deletes = kw_arena_array(arena, n_puts + 1, sizeof *m.deletes),
             .done = kw_arena_array(arena, n_puts + n_deletes, sizeof *m.done)};
  if (m.keys == NULL || m.puts == NULL || m.deletes == NULL || m.done == NULL)
    return KW_ERR_NO_MEMORY;
  gather_keys(&m, b);
  qsort(m.keys, m.n_keys, sizeof *m.keys, by_bytes);
  return mark_branch(&m, b);
}

/* }====== */

int kw_check_op(const kw_op *op, int64_t max_txn_ops, kw_arena *arena) {
  int rc = check_single(op, max_txn_ops);
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

/* Most puts are far below the limit, and need no exact size. */
static bool is_small_put(const kw_op *op, int64_t bytes) {
  return op->kind == KW_OP_PUT &&
         (int64_t)(op->put.key.len + op->put.value.len) + PUT_FIELDS <= bytes;
}

bool kw_check_exceeds(const kw_op *op, int64_t bytes) {
  return !is_small_put(op, bytes) && message_size(op) > bytes;
}

/* }====== */
