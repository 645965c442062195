/* SPDX-License-Identifier: MIT
 *
 * lease: the table of leases: their time to live, and the keys that are attached to each.
 *
 * The table knows nothing of records: deleting the keys of a lease is a write of the store, see lessor.h. Times are
 * milliseconds of the driver's clock. A lease never expires before its time.
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
  kw_heap_node due; /* time of expiry; a lease that is taken out of the table keeps it */
  kw_map keys;      /* of kw_key_history, by address */
  int64_t tag;      /* its end is announced under this number; 0: its end is not announced */
  bool has_expired; /* it is revoked because its time is over */
  struct kw_lease *next_ended;
} kw_lease;

/* All zero but the seed, the table is empty. */
typedef struct kw_leases {
  kw_map by_id;
  kw_heap due;   /* the soonest to expire first */
  uint64_t seed; /* of the ids that the table chooses */
  kw_lease *first_ended,
      *last_ended; /* leases with tags that have ended, and were not announced yet; in order */
} kw_leases;

/* Frees all leases that are in the table, and those whose end was not announced. */
void kw_leases_drop(kw_leases *leases);

/* Returns the lease of an id, or NULL. */
kw_lease *kw_leases_find(const kw_leases *leases, int64_t id);

/* Returns an id that is free, positive and below 2^46: a double holds it exactly, and Lua prints it in full. */
int64_t kw_leases_choose_id(kw_leases *leases);

/* Adds a lease that expires `ttl` seconds after `now`. The id must be free. Returns NULL if memory is short. */
kw_lease *kw_leases_add(kw_leases *leases, int64_t id, int64_t ttl, int64_t now);

/* Takes a lease without keys out of the table. The caller then owns it, and puts it back or frees it. */
void kw_leases_take_out(kw_leases *leases, kw_lease *lease);

/* Puts a lease back that was taken out. The caller has taken out all leases that were added in between; so this needs
 * no memory. */
void kw_leases_put_back(kw_leases *leases, kw_lease *lease);

/* Ends a lease that was taken out, for good: frees it, or keeps it until its end is announced. */
void kw_leases_end(kw_leases *leases, kw_lease *lease);

/* Takes the next end to be announced: the tag of the lease, and whether its time was over. Returns false if there is
 * none. */
bool kw_leases_next_ended(kw_leases *leases, int64_t *tag, bool *has_expired);

/* Gives a lease its full time from `now` on. */
void kw_leases_renew(kw_leases *leases, kw_lease *lease, int64_t now);

/* Returns the lease that expires first, or NULL. */
kw_lease *kw_leases_first(const kw_leases *leases);

/* Lists all leases in the arena, the soonest to expire first. Returns false if memory is short. */
bool kw_leases_list(const kw_leases *leases, kw_arena *arena, const kw_lease ***list, size_t *n);

/* Lists the histories of a lease's keys in the arena, in the order of keys. Returns false if memory is short. */
bool kw_lease_list(const kw_lease *lease, kw_arena *arena, kw_key_history ***keys, size_t *n);

/* Makes room for one more key: the next attach cannot fail. Returns false if memory is short. */
bool kw_lease_reserve(kw_lease *lease);

/* Attaches a key. Needs room: reserved, or left by a detach. */
void kw_lease_attach(kw_lease *lease, kw_key_history *key);

/* Detaches a key. */
void kw_lease_detach(kw_lease *lease, const kw_key_history *key);

#endif
