/* SPDX-License-Identifier: MIT */
#include "store/lease.h"

#include "base/mem.h"
#include "model/error.h"

#define TABLES_BYTES 64 /* of a lease: its entries in map and heap, and the overhead of malloc */
#define KEY_BYTES 32    /* of an attached key: its slots in a map that is half full */

static uint64_t id_of(const kw_key_history *key) {
  return (uint64_t)(uintptr_t)key;
}

static int64_t end_of(int64_t ttl, int64_t now) {
  return now + ttl * 1000;
}

static void free_lease(kw_lease *lease) {
  kw_map_drop(&lease->keys);
  kw_free(lease);
}

static kw_lease *lease_at(const kw_link *link) {
  return KW_CONTAINER_OF(link, kw_lease, link);
}

void kw_leases_init(kw_leases *leases, uint64_t id_seed, uint64_t hash_seed) {
  *leases =
      (kw_leases){.id_seed = id_seed, .by_id = {.seed = hash_seed}, .revoked = {.seed = hash_seed}};
  kw_link_init(&leases->all);
  kw_link_init(&leases->cursors);
  kw_link_init(&leases->waiting);
}

void kw_leases_drop(kw_leases *leases) {
  int64_t tag;
  bool has_expired;
  while (!kw_link_is_alone(&leases->all)) {
    kw_lease *lease = lease_at(leases->all.next);
    kw_link_remove(&lease->link);
    free_lease(lease);
  }
  while (kw_leases_next_ended(leases, &tag, &has_expired)) continue;
  while (!kw_link_is_alone(&leases->cursors)) kw_link_remove(leases->cursors.next);
  kw_map_drop(&leases->by_id);
  kw_map_drop(&leases->revoked);
  kw_heap_drop(&leases->due);
}

size_t kw_leases_bytes(const kw_leases *leases) {
  return leases->n_all * (sizeof(kw_lease) + TABLES_BYTES) + leases->n_keys * KEY_BYTES;
}

kw_lease *kw_leases_find(const kw_leases *leases, int64_t id) {
  return kw_map_get(&leases->by_id, (uint64_t)id);
}

/* SplitMix64: every seed gives a different sequence, in which ids do not repeat soon. */
int64_t kw_leases_choose_id(kw_leases *leases) {
  int64_t id;
  do {
    uint64_t z = leases->id_seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    id = (int64_t)((z ^ z >> 31) >> 18);
  } while (id == 0 || kw_leases_find(leases, id) != NULL);
  return id;
}

kw_lease *kw_leases_add(kw_leases *leases, int64_t id, int64_t ttl, int64_t now) {
  if (!kw_map_reserve(&leases->by_id) || !kw_heap_reserve(&leases->due)) return NULL;
  kw_lease *lease = kw_alloc(sizeof *lease);
  if (lease == NULL) return NULL;
  *lease = (kw_lease){.id = id,
                      .number = ++leases->last_number,
                      .ttl = ttl,
                      .due = {.when = end_of(ttl, now), .rank = id}};
  kw_link_add(&leases->all, &lease->link);
  kw_link_init(&lease->waiting);
  leases->n_all++;
  kw_map_put(&leases->by_id, (uint64_t)id, lease);
  kw_heap_add(&leases->due, &lease->due);
  return lease;
}

static void take_out(kw_leases *leases, kw_lease *lease) {
  assert(lease->keys.n == 0);
  kw_map_remove(&leases->by_id, (uint64_t)lease->id);
  kw_heap_remove(&leases->due, &lease->due);
}

/* {====== Cursors ====== */

void kw_lease_cursor_init(kw_lease_cursor *cursor, kw_leases *leases) {
  cursor->next = leases->all.next;
  cursor->last = leases->last_number;
  kw_link_init(&cursor->link);
  kw_link_add(&leases->cursors, &cursor->link);
}

/* Returns the next lease, or NULL. */
static const kw_lease *look(const kw_lease_cursor *cursor, const kw_leases *leases) {
  if (cursor->next == &leases->all) return NULL;
  const kw_lease *lease = lease_at(cursor->next);
  return lease->number > cursor->last ? NULL : lease;
}

const kw_lease *kw_lease_cursor_next(kw_lease_cursor *cursor, const kw_leases *leases) {
  const kw_lease *lease = look(cursor, leases);
  if (lease != NULL) cursor->next = cursor->next->next;
  return lease;
}

void kw_lease_cursor_drop(kw_lease_cursor *cursor) {
  kw_link_remove(&cursor->link);
}

/* Reports the end of a lease to the cursors that have not reached it. */
static void notify_cursors(const kw_leases *leases, const kw_lease *lease) {
  for (kw_link *link = leases->cursors.next; link != &leases->cursors; link = link->next) {
    kw_lease_cursor *cursor = KW_CONTAINER_OF(link, kw_lease_cursor, link);
    const kw_lease *next = look(cursor, leases);
    if (next == NULL || lease->number < next->number || lease->number > cursor->last) continue;
    if (next == lease) cursor->next = cursor->next->next;
    if (cursor->on_end != NULL) cursor->on_end(lease, cursor->ctx);
  }
}

/* }====== */

/* Frees a lease that is in no table, or keeps it until its end is announced. The tables keep memory for all leases that
 * may be put back. */
static void end(kw_leases *leases, kw_lease *lease) {
  notify_cursors(leases, lease);
  kw_link_remove(&lease->link);
  kw_link_remove(&lease->waiting);
  leases->n_all--;
  kw_map_shrink(&leases->by_id, leases->revoked.n);
  kw_heap_shrink(&leases->due, leases->revoked.n);
  if (lease->tag == 0) {
    free_lease(lease);
    return;
  }
  if (leases->first_ended == NULL) {
    leases->first_ended = lease;
  } else {
    leases->last_ended->next_ended = lease;
  }
  leases->last_ended = lease;
}

void kw_leases_remove(kw_leases *leases, kw_lease *lease) {
  take_out(leases, lease);
  end(leases, lease);
}

/* {====== Revoked leases ====== */

kw_lease *kw_leases_find_revoked(const kw_leases *leases, int64_t id) {
  return kw_map_get(&leases->revoked, (uint64_t)id);
}

bool kw_leases_revoke(kw_leases *leases, kw_lease *lease) {
  if (!kw_map_reserve(&leases->revoked)) return false;
  take_out(leases, lease);
  lease->is_revoked = true;
  lease->older = kw_leases_find_revoked(leases, lease->id);
  lease->newer = NULL;
  if (lease->older != NULL) lease->older->newer = lease;
  kw_map_put(&leases->revoked, (uint64_t)lease->id, lease);
  return true;
}

void kw_leases_put_back(kw_leases *leases, kw_lease *lease) {
  assert(lease->newer == NULL);
  if (lease->older == NULL) {
    kw_map_remove(&leases->revoked, (uint64_t)lease->id);
  } else {
    lease->older->newer = NULL;
    kw_map_put(&leases->revoked, (uint64_t)lease->id, lease->older);
  }
  lease->is_revoked = lease->has_expired = false;
  kw_map_put(&leases->by_id, (uint64_t)lease->id, lease);
  kw_heap_add(&leases->due, &lease->due);
}

/* Ends a revoked lease, which can no longer be put back. */
static void end_revoked(kw_leases *leases, kw_lease *lease) {
  assert(lease->older == NULL);
  if (lease->newer == NULL) {
    kw_map_remove(&leases->revoked, (uint64_t)lease->id);
    kw_map_shrink(&leases->revoked, 0);
  } else {
    lease->newer->older = NULL;
  }
  leases->n_revoked++;
  leases->n_expired += lease->has_expired;
  end(leases, lease);
}

void kw_leases_wait(kw_leases *leases, kw_lease *lease, uint64_t end) {
  lease->steps_end = end;
  kw_link_remove(&lease->waiting);
  kw_link_add(&leases->waiting, &lease->waiting);
}

static kw_lease *first_waiting(const kw_leases *leases) {
  if (kw_link_is_alone(&leases->waiting)) return NULL;
  return KW_CONTAINER_OF(leases->waiting.next, kw_lease, waiting);
}

bool kw_leases_has_forgotten(const kw_leases *leases, uint64_t first) {
  const kw_lease *lease = first_waiting(leases);
  return lease != NULL && lease->steps_end <= first;
}

static void shrink(kw_lease *lease, kw_work *work) {
  size_t cap = lease->keys.cap;
  kw_map_shrink(&lease->keys, 0);
  if (lease->keys.cap == cap) return;
  lease->moves++;
  kw_work_spend(work, cap * sizeof *lease->keys.slots);
}

void kw_leases_forget(kw_leases *leases, uint64_t first, kw_work *work) {
  while (kw_leases_has_forgotten(leases, first) && kw_work_is_left(work)) {
    kw_lease *lease = first_waiting(leases);
    kw_link_remove(&lease->waiting);
    kw_work_spend(work, 0);
    if (lease->is_revoked) {
      end_revoked(leases, lease);
    } else {
      shrink(lease, work);
    }
  }
}

/* }====== */

bool kw_leases_next_ended(kw_leases *leases, int64_t *tag, bool *has_expired) {
  kw_lease *lease = leases->first_ended;
  if (lease == NULL) return false;
  leases->first_ended = lease->next_ended;
  *tag = lease->tag;
  *has_expired = lease->has_expired;
  free_lease(lease);
  return true;
}

void kw_leases_renew(kw_leases *leases, kw_lease *lease, int64_t now) {
  kw_heap_move(&leases->due, &lease->due, end_of(lease->ttl, now));
}

kw_lease *kw_leases_first(const kw_leases *leases) {
  kw_heap_node *node = kw_heap_first(&leases->due);
  return node == NULL ? NULL : KW_CONTAINER_OF(node, kw_lease, due);
}

void kw_leases_postpone(kw_leases *leases, int64_t now, int64_t until) {
  kw_lease *lease;
  while ((lease = kw_leases_first(leases)) != NULL && lease->due.when <= now)
    kw_heap_move(&leases->due, &lease->due, until);
}

/* {====== Lists ====== */

static int by_key(const kw_sorter_item *a, const kw_sorter_item *b, void *ctx) {
  kw_slice x = kw_key_history_key((void *)(intptr_t)a->id);
  kw_slice y = kw_key_history_key((void *)(intptr_t)b->id);
  kw_work *work = ctx;
  work->left -= (int64_t)(kw_min_size(x.len, y.len) / KW_WORK_BYTES);
  return kw_slice_compare(x, y);
}

int kw_lease_list_keys(const kw_lease *lease, kw_lease_list *list, kw_work *work) {
  void *key;
  while (!list->is_ordering && kw_work_is_left(work)) {
    key = kw_map_next(&lease->keys, &list->at);
    list->is_ordering = key == NULL;
    if (key == NULL) break;
    kw_sorter_item item = {.id = (int64_t)(intptr_t)key};
    if (!kw_sorter_push(&list->sorter, item, by_key, work)) return KW_ERR_NO_MEMORY;
    kw_work_spend(work, 0);
  }
  while (list->is_ordering && kw_work_is_left(work)) {
    if (kw_sorter_settle(&list->sorter, by_key, work)) return KW_OK;
    kw_work_spend(work, KW_ORDER_BYTES);
  }
  return KW_UNFINISHED;
}

/* }====== */

bool kw_lease_reserve(kw_lease *lease) {
  size_t cap = lease->keys.cap;
  bool ok = kw_map_reserve(&lease->keys);
  lease->moves += lease->keys.cap != cap;
  return ok;
}

void kw_lease_attach(kw_leases *leases, kw_lease *lease, kw_key_history *key) {
  leases->n_keys++;
  kw_map_put(&lease->keys, id_of(key), key);
}

void kw_lease_detach(kw_leases *leases, kw_lease *lease, const kw_key_history *key) {
  leases->n_keys--;
  kw_map_remove(&lease->keys, id_of(key));
}
