/* SPDX-License-Identifier: MIT
 *
 * lease: the table of leases: their time to live, and the keys that are attached to each.
 *
 * The table does not use records: deleting the keys of a lease is a write of the store, see lessor.h. Times are
 * milliseconds of the driver's clock. A lease never expires before its time.
 */
#ifndef KW_STORE_LEASE_H
#define KW_STORE_LEASE_H

#include "base/arena.h"
#include "base/heap.h"
#include "base/link.h"
#include "base/map.h"
#include "base/sorter.h"
#include "store/key_history.h"
#include "store/work.h"

typedef struct kw_lease {
  int64_t id;
  uint64_t number;  /* numbers the leases in the order in which they were added */
  kw_link link;     /* in the list of all leases that have not ended, in that order */
  int64_t ttl;      /* seconds, as granted */
  kw_heap_node due; /* time of expiry; a revoked lease keeps it */
  kw_map keys;      /* of kw_key_history, by address */
  /* Only steps before this number may have detached keys or revoked the lease; see kw_undo_list. */
  uint64_t steps_end;
  kw_link waiting; /* linked until these steps are forgotten, see kw_leases_wait */
  uint32_t moves;  /* how often the keys moved to a table of another size */
  int64_t tag;     /* number that announces the end of the lease; 0: the end is not announced */
  bool is_revoked;
  bool has_expired; /* revoked because it has expired */
  struct kw_lease *next_ended;
  struct kw_lease *older, *newer; /* leases of the same id, all revoked */
} kw_lease;

typedef struct kw_leases {
  kw_map by_id;
  kw_link all;          /* leases that have not ended: those of by_id, and the revoked ones */
  size_t n_all;         /* leases of that list */
  size_t n_keys;        /* keys that are attached to leases */
  uint64_t n_revoked;   /* leases that were revoked and have ended, since the table was made */
  uint64_t n_expired;   /* of these, leases that have expired */
  uint64_t last_number; /* number of the newest lease */
  kw_link cursors;      /* list of kw_lease_cursor */
  kw_link waiting;      /* list of kw_lease, in the order of their last steps */
  kw_heap due;          /* the first lease to expire is first */
  kw_map revoked;       /* leases whose revocation may be undone, by id: the newest of each id */
  uint64_t id_seed;     /* of the ids that the table chooses */
  kw_lease *first_ended,
      *last_ended; /* leases with tags that have ended, and were not announced yet; in order */
} kw_leases;

/* Walks over the leases that existed when the walk began, in the order in which they were added. Leases may be added,
 * renewed and revoked during the walk. A lease that ends before the cursor has reached it is passed to on_end. */
typedef struct kw_lease_cursor {
  kw_link link;                                     /* in the list of the table's cursors */
  kw_link *next;                                    /* link of the next lease, or the list of all */
  uint64_t last;                                    /* number of the last lease */
  void (*on_end)(const kw_lease *lease, void *ctx); /* may be NULL */
  void *ctx;
} kw_lease_cursor;

/* A list of the keys of a lease, made in steps. All zero is an empty list. A complete list has its keys in the items of
 * the sorter: the `id` of an item is the address of a kw_key_history. */
typedef struct kw_lease_list {
  size_t at; /* position in the map of keys */
  bool is_ordering;
  kw_sorter sorter;
} kw_lease_list;

/* Makes an empty table. `id_seed` is the seed of the ids that the table chooses; a client could compute it from them.
 * `hash_seed` is the seed of the hashes, see base/hash.h. */
void kw_leases_init(kw_leases *leases, uint64_t id_seed, uint64_t hash_seed);

/* Frees all leases of the table, and those whose end was not announced. Afterwards cursors may only be dropped. */
void kw_leases_drop(kw_leases *leases);

/* Returns about how much memory the leases and their keys take, in bytes. O(1). */
size_t kw_leases_bytes(const kw_leases *leases);

/* Returns the lease of an id, or NULL. */
kw_lease *kw_leases_find(const kw_leases *leases, int64_t id);

/* Returns an id that is free, positive and below 2^46, which a double represents exactly and Lua prints in full. */
int64_t kw_leases_choose_id(kw_leases *leases);

/* Adds a lease that expires `ttl` seconds after `now`. The id must be free. Returns NULL if memory is short. */
kw_lease *kw_leases_add(kw_leases *leases, int64_t id, int64_t ttl, int64_t now);

/* Removes a lease without keys: frees it, or keeps it until its end is announced. */
void kw_leases_remove(kw_leases *leases, kw_lease *lease);

/* Revokes a lease without keys: its id is free. The caller then puts the lease back, or ends it. Returns false, with
 * nothing changed, if memory is short. */
bool kw_leases_revoke(kw_leases *leases, kw_lease *lease);

/* Puts a revoked lease back. The caller has already removed all leases that were added since its revocation, and put
 * back all that were revoked since; so no memory is needed. */
void kw_leases_put_back(kw_leases *leases, kw_lease *lease);

/* Notes that the last step before the number `end` has detached a key of the lease, or revoked the lease. */
void kw_leases_wait(kw_leases *leases, kw_lease *lease, uint64_t end);

/* True if a lease waits whose steps are all before the number `first`. */
bool kw_leases_has_forgotten(const kw_leases *leases, uint64_t first);

/* Called when the steps before the number `first` are forgotten. Until the work is used up, frees the memory of the
 * keys that these steps have detached, and finally ends the leases that they have revoked: a lease is freed, or kept
 * until its end is announced. Of the revoked leases of one id the oldest ends first. */
void kw_leases_forget(kw_leases *leases, uint64_t first, kw_work *work);

/* Returns the last revoked lease of an id that may be put back, or NULL. O(1). */
kw_lease *kw_leases_find_revoked(const kw_leases *leases, int64_t id);

/* Takes the next lease end that has to be announced: the tag of the lease, and whether the lease has ended because it
 * expired. Returns false if there is none. */
bool kw_leases_next_ended(kw_leases *leases, int64_t *tag, bool *has_expired);

/* Gives a lease its full time from `now` on. */
void kw_leases_renew(kw_leases *leases, kw_lease *lease, int64_t now);

/* Returns the lease that expires first, or NULL. */
kw_lease *kw_leases_first(const kw_leases *leases);

/* Lets all leases that have expired at `now` expire at `until`, which is later: the commit group that revoked them has
 * failed. */
void kw_leases_postpone(kw_leases *leases, int64_t now, int64_t until);

/* Begins a walk. The caller sets on_end and ctx before. kw_lease_cursor_drop has to follow. */
void kw_lease_cursor_init(kw_lease_cursor *cursor, kw_leases *leases);

/* Returns the next lease, or NULL at the end. */
const kw_lease *kw_lease_cursor_next(kw_lease_cursor *cursor, const kw_leases *leases);

/* Ends a walk. */
void kw_lease_cursor_drop(kw_lease_cursor *cursor);

/* Begins or continues a list of the keys of a lease, in the order of keys. The keys of the lease must not change
 * between two calls; store/lease_read.h has a list that lets them change. Returns KW_OK if the list is complete,
 * KW_UNFINISHED if the work is used up, or KW_ERR_NO_MEMORY. */
int kw_lease_list_keys(const kw_lease *lease, kw_lease_list *list, kw_work *work);

/* Reserves memory for one more key: the next attach cannot fail. Returns false if memory is short. */
bool kw_lease_reserve(kw_lease *lease);

/* Attaches a key that is not attached. Its memory was reserved, or left by a detach. */
void kw_lease_attach(kw_leases *leases, kw_lease *lease, kw_key_history *key);

/* Detaches an attached key. Its memory remains reserved. */
void kw_lease_detach(kw_leases *leases, kw_lease *lease, const kw_key_history *key);

#endif
