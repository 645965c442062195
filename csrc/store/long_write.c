/* SPDX-License-Identifier: MIT */
#include "store/long_write.h"

#include "base/mem.h"
#include "store/durability.h"
#include "store/quota.h"
#include "store/replica.h"
#include "store/write.h"

struct kw_long_write {
  kw_txn txn;
  kw_write_owner owner;
};

static void free_long_write(kw_long_write *write) {
  kw_txn_drop(&write->txn);
  if (write->owner.on_free != NULL) write->owner.on_free(write->owner.ctx);
  kw_free(write);
}

void kw_long_write_free(kw_store *store) {
  if (store->long_write != NULL) free_long_write(store->long_write);
  store->long_write = NULL;
}

/* The committed writes are submitted first, since nothing is submitted while the store is busy. */
kw_txn *kw_long_write_begin(kw_store *store, kw_write_owner owner) {
  kw_long_write *write = kw_alloc_zeroed(sizeof *write);
  if (write == NULL) return NULL;
  kw_pause_end(&store->durability.pause);
  kw_store_flush(store);
  write->owner = owner;
  store->live_before = store->index.live;
  store->long_write = write;
  store->write_failure = KW_OK;
  return &write->txn;
}

int kw_store_begin(kw_store *store, const kw_op *op, size_t limit, kw_arena *arena, kw_reply *reply,
                   kw_write_owner owner) {
  int rc = kw_store_admit(store, op, arena);
  kw_txn *txn = rc == KW_OK ? kw_long_write_begin(store, owner) : NULL;
  if (txn == NULL) return rc != KW_OK ? rc : KW_ERR_NO_MEMORY;
  kw_txn_begin(txn, op, 0, limit, arena, reply);
  txn->on_record = owner.on_record;
  txn->ctx = owner.ctx;
  return KW_OK;
}

uint64_t kw_store_take_number(kw_store *store) {
  return ++store->last_number;
}

void kw_store_set_first_task(kw_store *store, uint64_t number) {
  store->first_task = number;
}

bool kw_store_has_task_before(const kw_store *store, uint64_t number) {
  return store->first_task != 0 && store->first_task < number;
}

/* The owner of the write commits or rolls back in on_end: the store is no longer busy then. */
static void end(kw_store *store, int rc) {
  kw_long_write *write = store->long_write;
  store->long_write = NULL;
  if (rc < 0) kw_store_rollback(store);
  write->owner.on_end(rc, write->owner.ctx);
  free_long_write(write);
}

static int run(kw_store *store, kw_long_write *write, kw_work *work) {
  const kw_write_owner *owner = &write->owner;
  int rc = kw_txn_run(store, &write->txn, work);
  int failure = kw_log_failure(store->log);
  if (rc >= 0 && failure != KW_OK) rc = failure;
  return rc == KW_OK && owner->on_ready != NULL ? owner->on_ready(owner->ctx) : rc;
}

void kw_store_continue(kw_store *store, kw_work *work) {
  if (store->durability.failed != KW_OK && !kw_durability_undo(store, work)) return;
  if (store->long_write == NULL) return;
  kw_log_release(store->log);
  kw_long_write *write = store->long_write;
  int rc = store->write_failure == KW_OK ? run(store, write, work) : store->write_failure;
  if (rc == KW_UNFINISHED) return;
  store->write_failure = rc;
  if (rc == KW_OK || kw_write_rollback_within(store, work)) end(store, rc);
}

void kw_store_finish(kw_store *store) {
  kw_work work = kw_work_without_end();
  kw_replica_finish(store);
  kw_store_continue(store, &work);
}
