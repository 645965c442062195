/* SPDX-License-Identifier: MIT */
#include "store/long_read.h"

#include "base/mem.h"
#include "store/txn.h"

struct kw_long_read {
  kw_txn txn;
  uint64_t rewrites; /* of the store, when the last step ended */
  bool was_visible;  /* the revision was visible then: it cannot be undone */
  uint64_t ticket;
};

kw_long_read *kw_long_read_new(kw_store *store, const kw_op *op, size_t limit,
                               kw_on_record on_record, void *ctx, kw_arena *arena,
                               kw_reply *reply) {
  kw_long_read *read = kw_alloc_zeroed(sizeof *read);
  if (read == NULL) return NULL;
  bool is_visible = kw_store_only_reads(op);
  kw_txn_begin(&read->txn, op, is_visible ? store->revision : store->applied, limit, arena, reply);
  read->txn.on_record = on_record;
  read->txn.ctx = ctx;
  read->rewrites = store->rewrites;
  read->was_visible = read->txn.revision <= store->revision;
  read->ticket = is_visible ? 0 : kw_store_ticket(store);
  return read;
}

/* A read of the visible state continues even if later writes are undone. A read of the applied state does not: the
 * records that it has seen may be undone long before its ticket fails. */
int kw_long_read_step(kw_store *store, kw_long_read *read, kw_work *work) {
  int outcome = kw_store_outcome(store, read->ticket);
  if (outcome > 0 && store->durability.failed != KW_OK) outcome = store->durability.failed;
  if (outcome < 0) return outcome;
  bool is_rewritten = read->rewrites != store->rewrites;
  bool is_replaced = is_rewritten && (store->options.replica || !read->was_visible);
  read->rewrites = store->rewrites;
  read->was_visible = read->txn.revision <= store->revision;
  if (is_replaced || kw_read_check(store, read->txn.revision, read->txn.revision) != KW_OK)
    return KW_STALE;
  kw_log_release(store->log);
  int rc = kw_txn_run(store, &read->txn, work);
  int failure = kw_log_failure(store->log);
  return rc >= 0 && failure != KW_OK ? failure : rc;
}

uint64_t kw_long_read_ticket(const kw_long_read *read) {
  return read->ticket;
}

void kw_long_read_free(kw_long_read *read) {
  kw_txn_drop(&read->txn);
  kw_free(read);
}
