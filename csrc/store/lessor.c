/* SPDX-License-Identifier: MIT */
#include "store/lessor.h"

#include "store/alarm.h"
#include "store/long_write.h"
#include "store/quota.h"
#include "store/write.h"

#define LEASES_PER_STEP 500 /* etcd's limit for one pass */
#define LEASE_COST 64       /* what the quota counts for a lease */

int kw_store_grant(kw_store *store, int64_t now, int64_t *id, int64_t *ttl) {
  kw_store_finish(store);
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  int rc = kw_quota_check(store, LEASE_COST);
  if (rc == KW_OK) rc = kw_alarm_check(store, LEASE_COST);
  if (rc != KW_OK) return rc;
  if (*ttl > KW_LEASE_MAX_TTL) return KW_ERR_LEASE_TTL_TOO_LARGE;
  if (*id != 0 && kw_leases_find(&store->leases, *id) != NULL) return KW_ERR_LEASE_EXISTS;
  if (*id == 0) *id = kw_leases_choose_id(&store->leases);
  if (*ttl < store->options.min_lease_ttl) *ttl = store->options.min_lease_ttl;
  return kw_write_grant(store, now, *id, *ttl);
}

static int revoke(kw_store *store, kw_lease *lease, kw_work *work) {
  kw_txn txn;
  kw_txn_begin_revoke(&txn, lease);
  int rc = kw_txn_run(store, &txn, work);
  kw_txn_drop(&txn);
  if (rc != KW_OK) kw_store_rollback(store);
  return rc;
}

/* Finds the lease that is to be revoked. Returns KW_OK, or why it cannot be revoked. */
static int find(const kw_store *store, int64_t id, kw_lease **lease) {
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (kw_alarm_is_corrupt(store)) return KW_ERR_CORRUPT;
  *lease = kw_leases_find(&store->leases, id);
  return *lease == NULL ? KW_ERR_LEASE_NOT_FOUND : KW_OK;
}

int kw_store_revoke_within(kw_store *store, int64_t id, kw_work *work) {
  kw_lease *lease;
  int rc = find(store, id, &lease);
  return rc != KW_OK ? rc : revoke(store, lease, work);
}

static int begin_revoke(kw_store *store, kw_lease *lease, kw_write_owner owner) {
  kw_link_remove(&lease->waiting); /* no commit moves the keys that are being listed */
  kw_txn *txn = kw_long_write_begin(store, owner);
  if (txn == NULL) return KW_ERR_NO_MEMORY;
  kw_txn_begin_revoke(txn, lease);
  return KW_OK;
}

int kw_store_begin_revoke(kw_store *store, int64_t id, kw_write_owner owner) {
  kw_lease *lease;
  int rc = find(store, id, &lease);
  return rc != KW_OK ? rc : begin_revoke(store, lease, owner);
}

static bool is_expired(const kw_lease *lease, int64_t now) {
  return lease->due.when <= now;
}

/* A lease whose revocation can be undone still exists for callers, unless it has expired. Returns its ttl, or 0 if
 * there is none. */
static int64_t pending_ttl(const kw_store *store, int64_t id, int64_t now) {
  const kw_lease *lease = kw_leases_find_revoked(&store->leases, id);
  bool has_ended = lease == NULL || lease->steps_end <= kw_undo_first(&store->undo);
  return has_ended || is_expired(lease, now) ? 0 : lease->ttl;
}

void kw_store_keepalive(kw_store *store, int64_t now, int64_t id, int64_t *ttl) {
  kw_lease *lease = kw_leases_find(&store->leases, id);
  *ttl = lease == NULL ? pending_ttl(store, id, now) : 0;
  if (lease == NULL || is_expired(lease, now)) return;
  kw_leases_renew(&store->leases, lease, now);
  store->counters.renewed++;
  *ttl = lease->ttl;
}

void kw_store_tag_lease(kw_store *store, int64_t id, int64_t tag) {
  kw_lease *lease = kw_leases_find(&store->leases, id);
  if (lease == NULL) lease = kw_leases_find_revoked(&store->leases, id);
  if (lease != NULL) lease->tag = tag;
}

bool kw_store_next_ended(kw_store *store, int64_t *tag, bool *has_expired) {
  return kw_leases_next_ended(&store->leases, tag, has_expired);
}

void kw_store_time_to_live(const kw_store *store, int64_t now, int64_t id, kw_lease_info *info) {
  const kw_lease *lease = kw_leases_find(&store->leases, id);
  *info = (kw_lease_info){.id = id, .ttl = -1};
  if (lease == NULL || is_expired(lease, now)) return;
  info->ttl = (lease->due.when - now) / 1000;
  info->granted_ttl = lease->ttl;
}

/* {====== Expiry ====== */

static bool may_expire(const kw_store *store) {
  return store->failure == KW_OK && !kw_alarm_is_corrupt(store);
}

static kw_lease *first_expired(const kw_store *store, int64_t now) {
  kw_lease *lease = kw_leases_first(&store->leases);
  return lease != NULL && is_expired(lease, now) ? lease : NULL;
}

static void postpone(kw_store *store, kw_lease *lease, int64_t now) {
  kw_heap_move(&store->leases.due, &lease->due, now + KW_RETRY_MS);
}

int64_t kw_lessor_deadline(const kw_store *store) {
  const kw_lease *lease = kw_leases_first(&store->leases);
  return lease == NULL || !may_expire(store) ? KW_NEVER : lease->due.when;
}

/* Commits the revocation of a lease that has expired, or postpones it. */
static void finish_expiry(kw_store *store, kw_lease *lease, int rc) {
  if (rc == KW_OK) {
    kw_store_commit(store);
  } else {
    lease->has_expired = false;
    postpone(store, lease, store->now);
  }
}

/* After an error of the disk the lease itself may be undone. */
static void on_expiry_end(int rc, void *ctx) {
  kw_store *store = ctx;
  kw_lease *lease = kw_leases_find(&store->leases, store->expiring);
  if (rc == KW_OK || lease != NULL) finish_expiry(store, lease, rc);
}

/* Revokes a lease that has expired. One with many keys is revoked by a long write. */
static void expire(kw_store *store, kw_lease *lease, kw_work *work) {
  lease->has_expired = true; /* until its revocation is undone */
  int rc = revoke(store, lease, work);
  if (rc == KW_UNFINISHED) {
    store->expiring = lease->id;
    kw_write_owner owner = {.on_end = on_expiry_end, .ctx = store};
    rc = begin_revoke(store, lease, owner);
    if (rc == KW_OK) return;
  }
  finish_expiry(store, lease, rc);
}

bool kw_lessor_step(kw_store *store, int64_t now) {
  kw_work work = kw_work_of_turn();
  kw_lease *lease;
  if (!may_expire(store)) return false;
  for (int i = 0; i < LEASES_PER_STEP && kw_work_is_left(&work); i++) {
    if ((lease = first_expired(store, now)) == NULL) return false;
    expire(store, lease, &work);
    if (kw_store_is_busy(store)) return true;
  }
  return first_expired(store, now) != NULL;
}

/* }====== */
