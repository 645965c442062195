/* SPDX-License-Identifier: MIT
 *
 * lease_read: a list of all leases, or of the keys of one lease, made in steps between writes.
 *
 *   walking -> sorting -> taking, in order
 *
 * Leases have no history, so the list does not belong to one revision. A lease that exists from the first step of the
 * walk to the last is in the list, and so is a key that has the lease all that time; leases and keys that are added or
 * removed during the walk may be in the list. The walk never sees an open write: it pauses while the store is busy. It
 * restarts after committed writes were undone, and if the keys have moved to a table of another size.
 */
#ifndef KW_STORE_LEASE_READ_H
#define KW_STORE_LEASE_READ_H

#include "store/store.h"

typedef struct kw_lease_read kw_lease_read;

/* Begins a list of all leases, in the order of expiry. Returns NULL if memory is short. */
kw_lease_read *kw_lease_read_new(void);

/* Begins a list of the keys of a lease, in the order of keys. The lease must exist. Returns NULL if memory is short. */
kw_lease_read *kw_lease_read_new_keys(const kw_store *store, int64_t id);

/* Continues until the list can be taken, or the work is used up. Returns KW_OK, KW_UNFINISHED, KW_ERR_LEASE_NOT_FOUND
 * if the lease has ended, or KW_ERR_NO_MEMORY: then the list can only be freed. */
int kw_lease_read_step(kw_store *store, kw_lease_read *read, kw_work *work);

/* Returns a ticket for all writes that the walk may have seen. The walk must be finished. */
uint64_t kw_lease_read_ticket(const kw_lease_read *read);

/* Returns how many items of the list are still to be taken, at most. */
size_t kw_lease_read_left(const kw_lease_read *read);

/* Takes the next lease of the list. Returns false at the end. */
bool kw_lease_read_next_id(kw_lease_read *read, int64_t *id);

/* Takes the next key of the list, which is valid until the list is freed. Returns false at the end. */
bool kw_lease_read_next_key(kw_lease_read *read, kw_slice *key);

/* Returns the memory of the list, in bytes. */
size_t kw_lease_read_held(const kw_lease_read *read);

/* Frees a list. Its store may have been freed already. */
void kw_lease_read_free(kw_lease_read *read);

#endif
