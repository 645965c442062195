/* SPDX-License-Identifier: MIT */
#include "store/quota.h"

#define EMPTY_BYTES 4096 /* the size of a store without records; clients divide by it */

int64_t kw_quota_size(const kw_store *store, int64_t *in_use) {
  if (store->database != NULL) return kw_database_get_size(store->database, in_use);
  return *in_use = EMPTY_BYTES + (int64_t)kw_log_bytes(store->log);
}

int kw_quota_check(kw_store *store, int64_t cost) {
  int64_t quota = store->options.quota, in_use;
  if (cost == 0 || quota < 0) return KW_OK;
  kw_quota_size(store, &in_use);
  if (in_use + (int64_t)kw_log_pending_bytes(store->log) + cost < quota) return KW_OK;
  kw_store_arm(store, KW_ALARM_NO_SPACE);
  return KW_ERR_NO_SPACE;
}
