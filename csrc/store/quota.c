/* SPDX-License-Identifier: MIT */
#include "store/quota.h"

#define EMPTY_BYTES 4096 /* the size of an empty store; clients divide by it */

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

/* Returns the bytes that are in use once everything is in the database. */
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
