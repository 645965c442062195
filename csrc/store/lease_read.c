/* SPDX-License-Identifier: MIT */
#include "store/lease_read.h"

#include "base/mem.h"
#include "store/state.h"

#define SLOTS_PER_VISIT 16 /* of a table of keys: examining a free slot is cheap */
#define KEY_ORDER_BYTES (3 * KW_ORDER_BYTES) /* keys lie anywhere in memory */

/* A copy of a key. */
typedef struct listed_key {
  uint32_t len;
  uint8_t bytes[];
} listed_key;

struct kw_lease_read {
  bool has_begun;
  bool is_sorting; /* the walk has ended */
  uint64_t rewrites;
  uint64_t ticket;
  kw_sorter sorter;
  size_t taken; /* number of items of the sorter that were taken */

  kw_lease_cursor cursor; /* if leases are listed */

  int64_t lease;   /* id of the lease whose keys are listed; 0: leases are listed */
  uint64_t number; /* of the lease */
  uint32_t moves;  /* of its keys, see kw_lease, when the last step ended */
  size_t at;       /* position in the table of its keys */
  kw_arena arena;  /* has the copies of the keys */
  size_t bytes;    /* of the arena */
  kw_work *work;   /* of this step */
  bool is_short;   /* memory was short in this step */
};

kw_lease_read *kw_lease_read_new(void) {
  kw_lease_read *read = kw_alloc_zeroed(sizeof *read);
  if (read != NULL) kw_link_init(&read->cursor.link);
  return read;
}

kw_lease_read *kw_lease_read_new_keys(const kw_store *store, int64_t id) {
  kw_lease_read *read = kw_lease_read_new();
  if (read == NULL) return NULL;
  read->lease = id;
  read->number = kw_leases_find(&store->leases, id)->number;
  return read;
}

/* {====== Walking ====== */

static void restart(kw_store *store, kw_lease_read *read) {
  read->has_begun = true;
  read->rewrites = store->rewrites;
  kw_sorter_drop(&read->sorter);
  kw_arena_drop(&read->arena);
  read->bytes = 0;
  read->at = SIZE_MAX;
  kw_lease_cursor_drop(&read->cursor);
  if (read->lease == 0) kw_lease_cursor_init(&read->cursor, &store->leases);
}

static int by_id(const kw_sorter_item *a, const kw_sorter_item *b, void *ctx) {
  (void)ctx;
  return kw_order_signed(a->id, b->id);
}

static kw_slice key_of(const kw_sorter_item *item) {
  const listed_key *key = (const void *)(intptr_t)item->id;
  return kw_slice_of(key->bytes, key->len);
}

static int by_key(const kw_sorter_item *a, const kw_sorter_item *b, void *ctx) {
  kw_slice x = key_of(a), y = key_of(b);
  kw_work *work = ctx;
  work->left -= (int64_t)(kw_min_size(x.len, y.len) / KW_WORK_BYTES);
  return kw_slice_compare(x, y);
}

/* The cursor also visits revoked leases. */
static int walk_leases(const kw_store *store, kw_lease_read *read, kw_work *work) {
  while (kw_work_is_left(work)) {
    const kw_lease *lease = kw_lease_cursor_next(&read->cursor, &store->leases);
    if (lease == NULL) return KW_OK;
    kw_work_spend(work, 0);
    if (kw_leases_find(&store->leases, lease->id) != lease) continue;
    uint64_t when = (uint64_t)lease->due.when ^ UINT64_C(1) << 63; /* ordered like signed times */
    kw_sorter_item item = {.head = when, .id = lease->id};
    if (!kw_sorter_push(&read->sorter, item, by_id, NULL)) return KW_ERR_NO_MEMORY;
  }
  return KW_UNFINISHED;
}

static void list_key(void *value, void *ctx) {
  kw_lease_read *read = ctx;
  kw_slice key = kw_key_history_key(value);
  listed_key *copy = kw_arena_alloc(&read->arena, sizeof *copy + key.len);
  read->is_short = read->is_short || copy == NULL;
  if (read->is_short) return;
  copy->len = (uint32_t)key.len;
  memcpy(copy->bytes, key.data, key.len);
  read->bytes += sizeof *copy + key.len;
  kw_sorter_item item = {.id = (int64_t)(intptr_t)copy};
  read->is_short = !kw_sorter_push(&read->sorter, item, by_key, read->work);
  kw_work_spend(read->work, key.len);
}

static int walk_keys(kw_store *store, kw_lease_read *read, kw_work *work) {
  const kw_lease *lease = kw_leases_find(&store->leases, read->lease);
  if (lease == NULL || lease->number != read->number) return KW_ERR_LEASE_NOT_FOUND;
  if (lease->moves != read->moves) restart(store, read);
  read->moves = lease->moves;
  read->work = work;
  while (kw_work_is_left(work)) {
    if (!kw_map_visit(&lease->keys, &read->at, list_key, read)) return KW_OK;
    if (read->is_short) return KW_ERR_NO_MEMORY;
    if (read->at % SLOTS_PER_VISIT == 0) kw_work_spend(work, 0);
  }
  return KW_UNFINISHED;
}

static int walk(kw_store *store, kw_lease_read *read, kw_work *work) {
  if (kw_store_is_busy(store)) {
    work->left = 0;
    return KW_UNFINISHED;
  }
  if (!read->has_begun || read->rewrites != store->rewrites) restart(store, read);
  int rc = read->lease == 0 ? walk_leases(store, read, work) : walk_keys(store, read, work);
  if (rc != KW_OK) return rc;
  kw_lease_cursor_drop(&read->cursor);
  read->is_sorting = true;
  read->ticket = kw_store_ticket(store);
  return KW_OK;
}

/* }====== */

int kw_lease_read_step(kw_store *store, kw_lease_read *read, kw_work *work) {
  int rc = read->is_sorting ? KW_OK : walk(store, read, work);
  if (rc != KW_OK) return rc;
  bool has_ids = read->lease == 0;
  while (kw_work_is_left(work)) {
    if (kw_sorter_settle(&read->sorter, has_ids ? by_id : by_key, work)) return KW_OK;
    kw_work_spend(work, has_ids ? KW_ORDER_BYTES : KEY_ORDER_BYTES);
  }
  return KW_UNFINISHED;
}

uint64_t kw_lease_read_ticket(const kw_lease_read *read) {
  return read->ticket;
}

size_t kw_lease_read_left(const kw_lease_read *read) {
  return read->sorter.n - read->taken;
}

bool kw_lease_read_next_id(kw_lease_read *read, int64_t *id) {
  if (read->taken == read->sorter.n) return false;
  *id = read->sorter.items[read->taken++].id;
  return true;
}

/* Skips duplicates: a key that the walk has visited twice is in the list twice. */
bool kw_lease_read_next_key(kw_lease_read *read, kw_slice *key) {
  const kw_sorter_item *items = read->sorter.items;
  while (read->taken < read->sorter.n) {
    size_t i = read->taken++;
    *key = key_of(&items[i]);
    if (i == 0 || !kw_slice_equal(*key, key_of(&items[i - 1]))) return true;
  }
  return false;
}

size_t kw_lease_read_held(const kw_lease_read *read) {
  return sizeof *read + read->bytes + read->sorter.cap * sizeof *read->sorter.items;
}

void kw_lease_read_free(kw_lease_read *read) {
  kw_lease_cursor_drop(&read->cursor);
  kw_sorter_drop(&read->sorter);
  kw_arena_drop(&read->arena);
  kw_free(read);
}
