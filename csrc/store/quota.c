/* SPDX-License-Identifier: MIT */
#include "store/quota.h"

#include "store/alarm.h"
#include "store/check.h"

#define MAX_PENDING (256 << 20) /* bytes of records that are waiting for the disk */
#define EMPTY_BYTES 4096        /* the size of an empty store; clients divide by it */

/* In etcd a write is a raft proposal: the request, and a header with an id, a tag and a length. etcd's limit includes
 * the header. */
#define PROPOSAL_BYTES 18

static int64_t size_in_memory(const kw_store *store) {
  return EMPTY_BYTES + (int64_t)(kw_log_bytes(store->log) + kw_leases_bytes(&store->leases));
}

int64_t kw_quota_size(const kw_store *store, int64_t *in_use) {
  if (store->database == NULL) return *in_use = size_in_memory(store);
  int64_t size = kw_database_size(store->database);
  *in_use =
      kw_database_in_use(store->database) + (int64_t)kw_committer_lacking_bytes(store->committer);
  return size < *in_use ? *in_use : size;
}

/* Returns the bytes that will be in use when everything is in the database. */
static int64_t size_to_be(const kw_store *store) {
  if (store->database == NULL) return size_in_memory(store);
  return kw_database_in_use(store->database) + (int64_t)kw_log_pending_bytes(store->log);
}

int kw_quota_check(kw_store *store, int64_t cost) {
  int64_t quota = store->options.quota;
  if (cost == 0 || quota < 0 || size_to_be(store) + cost < quota) return KW_OK;
  kw_store_arm(store, KW_ALARM_NO_SPACE);
  return KW_ERR_NO_SPACE;
}

/* Checks in etcd's order: space, form, size, alarms. */
int kw_store_admit(kw_store *store, const kw_op *op, kw_arena *arena) {
  int64_t cost = kw_check_cost(op);
  bool is_write = kw_check_is_write(op);
  if (is_write && store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK && is_write) return store->failure;
  if (is_write && kw_log_pending_bytes(store->log) > MAX_PENDING) return KW_ERR_TOO_MANY_REQUESTS;
  int rc = kw_quota_check(store, cost);
  if (rc == KW_OK) rc = kw_check_op(op, store->options.max_txn_ops, arena);
  if (rc != KW_OK) return rc;
  if (is_write && kw_check_exceeds(op, store->options.max_request_bytes - PROPOSAL_BYTES)) {
    return KW_ERR_REQUEST_TOO_LARGE;
  }
  return is_write ? kw_alarm_check(store, cost) : KW_OK;
}
