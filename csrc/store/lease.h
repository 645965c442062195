/* SPDX-License-Identifier: MIT
 *
 * lease: ids with a time to live, and the keys that die with them.
 *
 * Only membership and time live here; deleting the keys of a lease is a transaction of the store. Times are
 * milliseconds of the driver's clock. A lease never ends before its time.
 */
#ifndef KW_STORE_LEASE_H
#define KW_STORE_LEASE_H

#include "base/arena.h"
#include "base/heap.h"
#include "base/map.h"
#include "store/key_history.h"

typedef struct kw_lease {
  int64_t id;
  int64_t ttl;      /* seconds, as granted */
  kw_heap_node due; /* its time; of a lease that is being revoked or granted, kept as well */
  kw_map keys;      /* of kw_key_history, by address */
} kw_lease;

typedef struct kw_leases {
  kw_map by_id;
  kw_heap due;
  uint64_t seed; /* of the ids that we choose */
} kw_leases;

/* All-zero leases, given a seed, are ready for use. */
void kw_leases_drop(kw_leases *leases);

kw_lease *kw_leases_find(const kw_leases *leases, int64_t id);

/* An id that is free, positive and below 2^46: every Lua and every JSON can hold it, and print it in full. */
int64_t kw_leases_choose_id(kw_leases *leases);

/* Adds a lease that ends `ttl` seconds after `now`; NULL if memory is short. The id must be free. */
kw_lease *kw_leases_add(kw_leases *leases, int64_t id, int64_t ttl, int64_t now);

/* Takes a lease out, which then is the caller's: to be put back, for which no memory is needed, or to be freed. It
 * has no keys any more. */
void kw_leases_take_out(kw_leases *leases, kw_lease *lease);
void kw_leases_put_back(kw_leases *leases, kw_lease *lease);
void kw_lease_free(kw_lease *lease);

/* Gives a lease its whole time again. */
void kw_leases_renew(kw_leases *leases, kw_lease *lease, int64_t now);

/* The lease that ends first, or NULL. */
kw_lease *kw_leases_first(const kw_leases *leases);

/* All leases, the soonest to end first; false if memory is short. */
bool kw_leases_list(const kw_leases *leases, kw_arena *arena, const kw_lease ***list, size_t *n);

/* The keys of a lease in order; false if memory is short. */
bool kw_lease_list(const kw_lease *lease, kw_arena *arena, kw_key_history ***keys, size_t *n);

/* Makes room for one more key, so that the next attach cannot fail; false if memory is short. */
bool kw_lease_reserve(kw_lease *lease);

/* What was detached can be attached again without memory. */
void kw_lease_attach(kw_lease *lease, kw_key_history *key);
void kw_lease_detach(kw_lease *lease, const kw_key_history *key);

#endif
