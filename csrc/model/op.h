/* SPDX-License-Identifier: MIT
 *
 * op: the requests to a store, as plain records: range, put, delete and transaction. An op borrows its slices and
 * arrays from the caller.
 */
#ifndef KW_MODEL_OP_H
#define KW_MODEL_OP_H

#include "model/range.h"

/* Decoders refuse transactions that nest deeper than this below the first one, so that code that walks a transaction
 * may recurse. etcd's default limit of 128 operations allows fewer levels. */
#define KW_MAX_TXN_NESTING 200

typedef enum kw_sort_order { KW_SORT_NONE, KW_SORT_ASCEND, KW_SORT_DESCEND } kw_sort_order;

typedef enum kw_sort_target {
  KW_SORT_KEY,
  KW_SORT_VERSION,
  KW_SORT_CREATE,
  KW_SORT_MOD,
  KW_SORT_VALUE
} kw_sort_target;

typedef struct kw_range_op {
  kw_range range;
  int64_t limit;    /* most kvs in the reply; <= 0: no limit */
  int64_t revision; /* to read at; <= 0: the current one */
  kw_sort_order sort_order;
  kw_sort_target sort_target;
  bool keys_only;           /* see kw_reply */
  bool count_only;          /* the reply has no kvs */
  bool serializable;        /* any member of a cluster may answer; the store ignores this */
  int64_t min_mod_revision; /* these four bounds filter the kvs, but not the count; 0: no bound */
  int64_t max_mod_revision;
  int64_t min_create_revision;
  int64_t max_create_revision;
} kw_range_op;

typedef struct kw_put_op {
  kw_slice key;
  kw_slice value;
  int64_t lease;     /* 0: none */
  bool prev_kv;      /* the reply has the kv before the put */
  bool ignore_value; /* the key keeps its value */
  bool ignore_lease; /* the key keeps its lease */
} kw_put_op;

typedef struct kw_delete_op {
  kw_range range;
  bool prev_kv; /* the reply has the deleted kvs */
} kw_delete_op;

typedef enum kw_compare_result {
  KW_COMPARE_EQUAL,
  KW_COMPARE_GREATER,
  KW_COMPARE_LESS,
  KW_COMPARE_NOT_EQUAL
} kw_compare_result;

typedef enum kw_compare_target {
  KW_COMPARE_VERSION,
  KW_COMPARE_CREATE,
  KW_COMPARE_MOD,
  KW_COMPARE_VALUE,
  KW_COMPARE_LEASE
} kw_compare_target;

/* Holds if `result` is true of the target and the operand, for every key of the range. If no key exists, the target
 * counts as 0, but a compare of the value does not hold. */
typedef struct kw_compare {
  kw_range range;
  kw_compare_result result;
  kw_compare_target target;
  int64_t number; /* operand, if the target is not VALUE */
  kw_slice value; /* operand, if the target is VALUE */
  int given; /* for the codec: number of the message's field that had the operand; 0: none had one */
} kw_compare;

typedef struct kw_op kw_op;

/* Runs `success` if all compares hold, else `failure`. */
typedef struct kw_txn_op {
  const kw_compare *compares;
  size_t n_compares;
  const kw_op *success;
  size_t n_success;
  const kw_op *failure;
  size_t n_failure;
} kw_txn_op;

typedef enum kw_op_kind {
  KW_OP_NONE, /* an empty operation: an error */
  KW_OP_RANGE,
  KW_OP_PUT,
  KW_OP_DELETE,
  KW_OP_TXN
} kw_op_kind;

struct kw_op {
  kw_op_kind kind;
  int tag; /* for the caller; the store ignores it */
  union {
    kw_range_op range;
    kw_put_op put;
    kw_delete_op delete;
    kw_txn_op txn;
  };
};

#endif
