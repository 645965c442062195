/* SPDX-License-Identifier: MIT */
#include "store/surplus.h"

#include "store/state.h"

/* The approximate memory of a key and of a lease. */
#define KEY_BYTES 120
#define LEASE_BYTES 128

#define LEAST (256 << 10) /* bytes: trimming less is not worth the time */
#define PORTION (8 << 20) /* bytes: this much is trimmed without a delay, */
#define SHARE 8           /* if it is at least 1 / SHARE of all memory; */
#define DELAY_MS 1000     /* less is trimmed when no more memory was freed for this long */

size_t kw_surplus_index_bytes(const kw_store *store) {
  return KEY_BYTES * store->index.n;
}

/* Excludes records that wait for the disk, since they are allocated and freed all the time. */
static size_t in_use(const kw_store *store) {
  return kw_log_memory(store->log) - kw_log_pending_bytes(store->log) +
         kw_surplus_index_bytes(store) + LEASE_BYTES * store->leases.by_id.n;
}

void kw_surplus_note(kw_store *store) {
  size_t n = in_use(store);
  if (n > store->surplus.most) store->surplus.most = n;
}

int64_t kw_surplus_deadline(const kw_store *store) {
  return store->surplus.is_trimming ? INT64_MIN : store->surplus.due_at;
}

void kw_surplus_step(kw_store *store, int64_t now) {
  kw_surplus *surplus = &store->surplus;
  kw_surplus_note(store);
  if (surplus->is_trimming) surplus->is_trimming = kw_mem_trim_step(&surplus->trim);
  if (surplus->is_trimming) return;
  size_t n = in_use(store), freed = surplus->most - n;
  bool is_portion = freed >= PORTION && freed >= surplus->most / SHARE;
  if (is_portion || now >= surplus->due_at) {
    *surplus = (kw_surplus){.most = n, .due_at = KW_NEVER, .is_trimming = true};
    kw_mem_trim_begin(&surplus->trim);
    return;
  }
  if (freed < LEAST) {
    surplus->due_at = KW_NEVER;
  } else if (freed > surplus->freed) {
    surplus->due_at = now + DELAY_MS;
  }
  surplus->freed = freed;
}
