/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "store/store.h"

#include "base/mem.h"
#include "codec/keyvalue.h"
#include "store/check.h"
#include "store/compaction.h"
#include "store/read.h"
#include "store/snapshot.h"
#include "store/txn.h"
#include "store/write.h"

#define LEASES_PER_STEP 500     /* etcd's limit for one pass */
#define RETRY_MS 500            /* after room or memory was short for what nobody waits for */
#define LEASE_COST 64           /* what the quota counts for a lease */
#define MAX_PENDING (256 << 20) /* bytes of records that wait for the disk */
#define MAP_MARGIN (INT64_C(64) << 20)
#define MAP_WITHOUT_QUOTA (INT64_C(1) << 40)
#define EMPTY_BYTES 4096 /* the size of a store without records; clients divide by it */

#define OWN_ALARMS ((1u << KW_ALARM_BITS) - 1)

/* A write travels as the proposal of etcd's raft: beside the request, it has a header with an id and, before
 * the request, a tag and a length. Its limit counts them. */
#define PROPOSAL_BYTES 18

kw_store_options kw_store_defaults(void) {
  return (kw_store_options){.max_request_bytes = KW_DEFAULT_MAX_REQUEST_BYTES,
                            .max_txn_ops = KW_DEFAULT_MAX_TXN_OPS,
                            .min_lease_ttl = KW_DEFAULT_MIN_LEASE_TTL_S,
                            .step_records = KW_DEFAULT_STEP_RECORDS,
                            .history_bytes = KW_DEFAULT_HISTORY_BYTES};
}

static void arm(kw_store *store, kw_alarm alarm);
static void retry_expiry(kw_store *store);
static int load_rows(kw_store *store);

static void on_durable(int64_t rev, void *ctx) {
  kw_store *store = ctx;
  int64_t before = store->revision, compacted = kw_log_meta(store->log).compact_revision;
  kw_write_settle(store, store->undo.submitted);
  store->is_held = false;
  if (kw_log_disk(store->log) != NULL && compacted > store->compact_revision)
    kw_compaction_start(store, compacted);
  store->revision = rev;
  if (store->hook.on_visible != NULL) store->hook.on_visible(before, store->hook.ctx);
}

/* The store goes back to what is durable. Without room it raises the alarm. After any other failure but a want of
 * memory it is open what has happened: the store can only be read until it is opened anew. */
static void on_failure(int rc, void *ctx) {
  kw_store *store = ctx;
  kw_write_undo_all(store);
  store->applied = store->revision;
  store->compact_asked = store->compact_revision;
  store->alarms = (unsigned)kw_log_meta(store->log).alarms;
  kw_rows_drop(&store->rows);
  if (load_rows(store) != KW_OK) store->failure = KW_ERR_STORAGE;
  if (rc == KW_ERR_NO_SPACE) {
    arm(store, KW_ALARM_NO_SPACE);
    store->raised |= KW_ALARM_NO_SPACE;
  }
  if (store->compact_is_stuck) arm(store, KW_ALARM_CORRUPT);
  if (rc != KW_ERR_NO_SPACE && rc != KW_ERR_NO_MEMORY) store->failure = KW_ERR_STORAGE;
  store->asked = 0;
  store->is_held = !store->was_asked;
  store->retry_at = store->now + RETRY_MS;
  retry_expiry(store);
}

void kw_store_set_hook(kw_store *store, kw_store_hook hook) {
  store->hook = hook;
}

kw_log_cursor kw_store_seek(const kw_store *store, int64_t rev) {
  return kw_log_seek(store->log, (kw_revision){.main = rev});
}

bool kw_store_next(const kw_store *store, kw_log_cursor *cursor, kw_log_entry *entry) {
  return kw_log_next(store->log, cursor, entry) && entry->rev.main <= store->revision;
}

kw_blob *kw_store_previous(const kw_store *store, kw_slice key, int64_t rev) {
  if (rev - 1 < store->compact_revision) return NULL;
  const kw_key_history *history = kw_index_find(&store->index, key);
  const kw_change *change = history == NULL ? NULL : kw_key_history_at(history, rev - 1);
  return change == NULL || change->tombstone ? NULL : kw_store_record(store, change);
}

int kw_store_read_failure(const kw_store *store) {
  return kw_log_failure(store->log);
}

int64_t kw_store_first_event(const kw_store *store) {
  int64_t first = store->compact_revision;
  return first > store->base_revision ? first : store->base_revision + 1;
}

/* {====== Opening ====== */

static int load_leases(kw_store *store, int64_t now) {
  kw_disk *disk = kw_log_disk(store->log);
  int64_t id, ttl;
  for (const int64_t *after = NULL; kw_disk_next_lease(disk, after, &id, &ttl); after = &id) {
    if (id == 0 || ttl <= 0 || ttl > KW_LEASE_MAX_TTL) return KW_ERR_CORRUPT;
    if (kw_leases_add(&store->leases, id, ttl, now) == NULL) return KW_ERR_NO_MEMORY;
  }
  return KW_OK;
}

static int load_rows(kw_store *store) {
  kw_row_change found = {0};
  int rc = KW_OK;
  while (rc == KW_OK && kw_disk_next_row(kw_log_disk(store->log), &found.name, &found.bytes))
    rc = kw_rows_apply(&store->rows, &found);
  return rc;
}

/* What the disk says is believed only as far as it can be. */
static bool decode(const kw_store *store, const kw_disk_entry *entry, kw_kv *kv) {
  kw_revision rev = entry->rev;
  if (rev.main < 1 || rev.main > store->revision || rev.sub > KW_MAX_SUB) return false;
  if (!kw_keyvalue_has_key(entry->record) || !kw_keyvalue_decode(entry->record, kv)) return false;
  return entry->tombstone || (kv->mod_revision == rev.main && kv->version <= KW_MAX_REVISION);
}

static bool is_sound(const kw_disk_meta *meta) {
  return meta->revision >= 1 && meta->revision <= KW_MAX_REVISION && meta->compact_revision >= -1 &&
         meta->compact_revision <= meta->revision && meta->compacted_until >= 0 &&
         meta->compacted_until <= meta->compact_revision + 1;
}

static int load_record(kw_store *store, const kw_disk_entry *entry) {
  kw_change change = {
      .main = entry->rev.main, .sub = entry->rev.sub, .tombstone = entry->tombstone};
  kw_kv kv;
  if (!decode(store, entry, &kv)) return KW_ERR_CORRUPT;
  int rc = kw_write_load(store, change, &kv);
  if (rc == KW_OK) kw_log_found(store->log, entry);
  return rc;
}

static int refuse_damaged(const kw_store *store, char text[KW_DISK_TEXT]) {
  snprintf(text, KW_DISK_TEXT, "keywatch: %.360s is damaged",
           kw_disk_path(kw_log_disk(store->log)));
  return KW_ERR_CORRUPT;
}

int kw_store_load(kw_store *store, size_t n, size_t *done, size_t *total, char text[KW_DISK_TEXT]) {
  kw_disk *disk = kw_log_disk(store->log);
  kw_disk_entry entry;
  int rc = KW_OK;
  *total = disk == NULL ? 0 : kw_disk_records(disk);
  *done = kw_log_count(store->log);
  for (; n > 0 && *done < *total && rc == KW_OK; n--, ++*done) {
    if (kw_disk_next(disk, store->loading, &entry) <= 0) return refuse_damaged(store, text);
    rc = load_record(store, &entry);
    store->loading = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
  }
  return rc == KW_ERR_CORRUPT ? refuse_damaged(store, text) : rc;
}

/* The state that the disk has, but for its records. */
static int load(kw_store *store, int64_t now) {
  kw_disk_meta meta = kw_log_meta(store->log);
  if (!is_sound(&meta)) return KW_ERR_CORRUPT;
  store->applied = store->revision = meta.revision;
  store->compact_asked = store->compact_revision = meta.compact_revision;
  store->compact_next = meta.compacted_until;
  store->alarms = (unsigned)meta.alarms;
  int rc = load_leases(store, now);
  return rc == KW_OK ? load_rows(store) : rc;
}

/* A map has room for the quota twice: pages that are free again can be used again only in part. */
static size_t map_bytes(const kw_store_options *options) {
  int64_t quota = options->quota < 0 ? MAP_WITHOUT_QUOTA : options->quota;
  return (size_t)(quota > INT64_MAX / 4 ? INT64_MAX / 2 : 2 * quota + MAP_MARGIN);
}

int kw_store_open(const kw_store_options *options, int64_t now, kw_store **result,
                  char text[KW_DISK_TEXT]) {
  kw_store *store = kw_alloc(sizeof *store);
  kw_disk *disk = NULL;
  if (store == NULL) return KW_ERR_NO_MEMORY;
  *store = (kw_store){.options = *options,
                      .leases = {.seed = options->seed},
                      .applied = 1,
                      .revision = 1,
                      .compact_asked = -1,
                      .compact_revision = -1,
                      .now = now};
  kw_link_init(&store->snapshots);
  if (store->options.quota == 0) store->options.quota = KW_DEFAULT_QUOTA;
  int rc = KW_OK;
  if (options->path != NULL)
    rc = kw_disk_open(options->path, map_bytes(&store->options), &disk, text);
  if (rc == KW_OK) {
    store->log = kw_log_new((kw_log_hook){on_durable, on_failure, store}, disk);
    if (store->log == NULL) rc = KW_ERR_NO_MEMORY;
    if (store->log == NULL && disk != NULL) kw_disk_close(disk);
  }
  if (rc == KW_OK && disk != NULL) rc = load(store, now);
  if (rc == KW_OK && disk != NULL && kw_disk_is_damaged(disk)) rc = KW_ERR_CORRUPT;
  if (rc == KW_ERR_CORRUPT) refuse_damaged(store, text);
  if (rc == KW_OK) {
    *result = store;
    return KW_OK;
  }
  if (store->log != NULL) {
    kw_store_free(store);
  } else {
    kw_free(store);
  }
  return rc;
}

/* }====== */

/* {====== Durability ====== */

static kw_disk_meta meta_of(const kw_store *store) {
  return (kw_disk_meta){.compact_revision = store->compact_asked,
                        .compacted_until = kw_compaction_next(store),
                        .alarms = (int64_t)store->alarms};
}

void kw_store_flush(kw_store *store) {
  kw_disk_meta meta = meta_of(store);
  if (store->failure != KW_OK || (store->is_held && !store->is_asked)) return;
  if (!kw_log_flush(store->log, &meta)) return;
  store->undo.submitted = store->undo.committed;
  if (store->is_asked) store->asked = kw_log_ticket(store->log, &meta);
  store->was_asked = store->is_asked;
  store->is_asked = false;
}

/* The next group follows at once. */
bool kw_store_poll(kw_store *store) {
  kw_log_release(store->log);
  bool any = kw_log_poll(store->log, false);
  if (any) kw_store_flush(store);
  return any;
}

/* Snapshots ring it, too. */
void kw_store_set_bell(kw_store *store, kw_bell bell) {
  kw_bell_release(&store->bell);
  store->bell = bell;
  if (bell.ring == NULL || !kw_store_is_durable(store)) return;
  kw_disk_set_bell(kw_log_disk(store->log), kw_bell_retain(&bell));
}

static uint64_t newest_ticket(const kw_store *store) {
  kw_disk_meta meta = meta_of(store);
  return store->failure == KW_OK ? kw_log_ticket(store->log, &meta) : 0;
}

uint64_t kw_store_ticket(const kw_store *store) {
  return store->is_asked || store->failure != KW_OK ? newest_ticket(store) : store->asked;
}

void kw_store_ask(kw_store *store) {
  store->is_asked = true;
}

bool kw_store_is_settled(const kw_store *store, uint64_t ticket) {
  return kw_log_is_settled(store->log, ticket);
}

int kw_store_outcome(const kw_store *store, uint64_t ticket) {
  return kw_log_outcome(store->log, ticket);
}

int kw_store_defragment(kw_store *store) {
  if (store->failure != KW_OK) return store->failure;
  store->is_asked = true;
  if (kw_store_is_durable(store)) kw_log_defragment(store->log);
  return KW_OK;
}

int kw_store_defragmented(const kw_store *store) {
  return kw_store_is_durable(store) ? kw_disk_defragmented(kw_log_disk(store->log)) : KW_OK;
}

uint64_t kw_store_settled(const kw_store *store) {
  return kw_log_settled(store->log);
}

bool kw_store_is_pending(const kw_store *store) {
  return !kw_store_is_settled(store, newest_ticket(store));
}

bool kw_store_is_durable(const kw_store *store) {
  return kw_log_disk(store->log) != NULL;
}

int kw_store_wait(kw_store *store, uint64_t ticket) {
  while (!kw_log_is_settled(store->log, ticket)) {
    store->is_asked = true;
    kw_store_flush(store);
    if (!kw_log_poll(store->log, true)) return KW_ERR_STORAGE;
  }
  kw_store_flush(store);
  return kw_log_outcome(store->log, ticket);
}

/* }====== */

bool kw_store_is_inherited(const kw_store *store) {
  const kw_disk *disk = kw_log_disk(store->log);
  return disk != NULL && kw_disk_is_inherited(disk);
}

void kw_store_free(kw_store *store) {
  kw_snapshot_end_all(store);
  kw_store_set_bell(store, (kw_bell){0});
  kw_write_settle(store, store->undo.n);
  kw_leases_drop(&store->leases);
  kw_index_drop(&store->index);
  kw_rows_drop(&store->rows);
  kw_log_free(store->log);
  kw_free(store->undo.steps);
  kw_arena_drop(&store->scratch);
  kw_free(store);
}

/* {====== Space and alarms ====== */

static void arm(kw_store *store, kw_alarm alarm) {
  if (store->failure == KW_OK) store->alarms |= alarm;
}

int kw_store_arm(kw_store *store, kw_alarm alarm) {
  store->is_asked = true;
  arm(store, alarm);
  return store->failure;
}

int kw_store_disarm_own(kw_store *store, kw_alarm alarm) {
  if (store->failure != KW_OK) return store->failure;
  store->is_asked = true;
  store->alarms &= ~(unsigned)alarm;
  store->raised &= ~(unsigned)alarm;
  if (alarm == KW_ALARM_CORRUPT) store->compact_is_stuck = false;
  return KW_OK;
}

/* What the names of the states begin with that are an alarm of other members. */
static kw_slice others_prefix(kw_alarm alarm) {
  static const char no_space[] = "alarms\0no_space/", corrupt[] = "alarms\0corrupt/";
  return alarm == KW_ALARM_NO_SPACE ? kw_slice_of(no_space, sizeof no_space - 1)
                                    : kw_slice_of(corrupt, sizeof corrupt - 1);
}

/* How many other members have an alarm; *first is the place of the first of their states. */
static size_t count_others(const kw_rows *rows, kw_alarm alarm, size_t *first) {
  kw_slice prefix = others_prefix(alarm);
  size_t at = *first = kw_rows_seek(rows, prefix);
  while (at < rows->n && kw_slice_begins(kw_blob_slice(rows->items[at].name), prefix)) at++;
  return at - *first;
}

/* The alarms that other members have. */
static unsigned others_of(const kw_rows *rows) {
  size_t first;
  unsigned armed = 0;
  if (count_others(rows, KW_ALARM_NO_SPACE, &first) > 0) armed |= KW_ALARM_NO_SPACE;
  if (count_others(rows, KW_ALARM_CORRUPT, &first) > 0) armed |= KW_ALARM_CORRUPT;
  return armed;
}

int kw_store_disarm(kw_store *store, kw_alarm alarm, kw_arena *arena) {
  size_t first, n = count_others(&store->rows, alarm, &first);
  kw_row_change *changes = kw_arena_array(arena, n, sizeof *changes);
  if (changes == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < n; i++) {
    kw_slice name = kw_blob_slice(store->rows.items[first + i].name);
    changes[i] = (kw_row_change){.name = name, .is_erased = true};
  }
  int rc = n == 0 ? KW_OK : kw_store_change_rows(store, changes, n);
  return rc == KW_OK ? kw_store_disarm_own(store, alarm) : rc;
}

static unsigned all_of(unsigned alarms) {
  return (alarms | alarms >> KW_ALARM_BITS) & OWN_ALARMS;
}

static bool is_corrupt(const kw_store *store) {
  return all_of(store->alarms) & KW_ALARM_CORRUPT;
}

/* Bytes, and those of them that are in use. */
static int64_t size_of(const kw_store *store, int64_t *in_use) {
  const kw_disk *disk = kw_log_disk(store->log);
  if (disk == NULL) return *in_use = EMPTY_BYTES + (int64_t)kw_log_bytes(store->log);
  return kw_disk_get_size(disk, in_use);
}

/* What does not fit raises the alarm, and fails. */
static int check_quota(kw_store *store, int64_t cost) {
  int64_t quota = store->options.quota, in_use;
  if (cost == 0 || quota < 0) return KW_OK;
  size_of(store, &in_use);
  if (in_use + (int64_t)kw_log_pending_bytes(store->log) + cost < quota) return KW_OK;
  kw_store_arm(store, KW_ALARM_NO_SPACE);
  return KW_ERR_NO_SPACE;
}

/* While an alarm is armed, writes that could make things worse fail. Reads go on. */
static int check_alarms(const kw_store *store, int64_t cost) {
  if (is_corrupt(store)) return KW_ERR_CORRUPT;
  return (all_of(store->alarms) & KW_ALARM_NO_SPACE) && cost > 0 ? KW_ERR_NO_SPACE : KW_OK;
}

/* }====== */

/* {====== Writes ====== */

/* In etcd's order: room, form, size, alarms. */
static int admit(kw_store *store, const kw_op *op, kw_arena *arena) {
  int64_t cost = kw_check_cost(op);
  bool is_write = kw_check_is_write(op);
  if (is_write && store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK && is_write) return store->failure;
  if (is_write && kw_log_pending_bytes(store->log) > MAX_PENDING) return KW_ERR_TOO_MANY_REQUESTS;
  int rc = check_quota(store, cost);
  if (rc == KW_OK) rc = kw_check_op(op, store->options.max_txn_ops, arena);
  if (rc != KW_OK) return rc;
  if (is_write && kw_check_exceeds(op, store->options.max_request_bytes - PROPOSAL_BYTES)) {
    return KW_ERR_REQUEST_TOO_LARGE;
  }
  return is_write ? check_alarms(store, cost) : KW_OK;
}

int kw_store_apply(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply) {
  int rc = admit(store, op, arena);
  if (rc != KW_OK) return rc;
  kw_log_release(store->log);
  rc = kw_txn_run(store, op, arena, reply);
  if (rc == KW_OK) rc = kw_log_failure(store->log);
  if (rc != KW_OK) kw_store_rollback(store);
  return rc;
}

void kw_store_commit(kw_store *store) {
  bool has_changes = store->open.n > 0;
  if (store->undo.n > store->undo.committed) store->is_asked = true;
  kw_write_commit(store);
  if (kw_log_disk(store->log) == NULL) kw_write_settle(store, store->undo.committed);
  if (!has_changes) return;
  store->applied = store->open.main;
  kw_log_commit(store->log, store->applied);
}

void kw_store_rollback(kw_store *store) {
  kw_write_rollback(store);
}

int kw_store_compact(kw_store *store, int64_t revision) {
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (is_corrupt(store)) return KW_ERR_CORRUPT;
  if (revision <= store->compact_asked) return KW_ERR_COMPACTED;
  if (revision > store->revision) return KW_ERR_FUTURE_REVISION;
  store->compact_asked = revision;
  store->is_asked = true;
  if (kw_log_disk(store->log) == NULL) kw_compaction_start(store, revision);
  return KW_OK;
}

/* }====== */

/* {====== Leases ====== */

int kw_store_grant(kw_store *store, int64_t now, int64_t *id, int64_t *ttl) {
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  int rc = check_quota(store, LEASE_COST);
  if (rc == KW_OK) rc = check_alarms(store, LEASE_COST);
  if (rc != KW_OK) return rc;
  if (*ttl > KW_LEASE_MAX_TTL) return KW_ERR_LEASE_TTL_TOO_LARGE;
  if (*id != 0 && kw_leases_find(&store->leases, *id) != NULL) return KW_ERR_LEASE_EXISTS;
  if (*id == 0) *id = kw_leases_choose_id(&store->leases);
  if (*ttl < store->options.min_lease_ttl) *ttl = store->options.min_lease_ttl;
  return kw_write_grant(store, now, *id, *ttl);
}

static int revoke(kw_store *store, kw_lease *lease) {
  kw_arena_reset(&store->scratch);
  int rc = kw_txn_delete_lease(store, lease, &store->scratch);
  if (rc == KW_OK) rc = kw_write_revoke(store, lease);
  if (rc != KW_OK) kw_store_rollback(store);
  return rc;
}

int kw_store_revoke(kw_store *store, int64_t id) {
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (is_corrupt(store)) return KW_ERR_CORRUPT;
  kw_lease *lease = kw_leases_find(&store->leases, id);
  return lease == NULL ? KW_ERR_LEASE_NOT_FOUND : revoke(store, lease);
}

static bool is_over(const kw_lease *lease, int64_t now) {
  return lease->due.when <= now;
}

/* The time of a lease whose revocation is not durable: it still is there; or 0. */
static int64_t pending_ttl(const kw_store *store, int64_t id) {
  for (size_t i = 0; i < store->undo.n; i++) {
    const kw_undo *step = &store->undo.steps[i];
    if (step->kind == KW_UNDO_REVOKE && step->lease->id == id) return step->lease->ttl;
  }
  return 0;
}

void kw_store_keepalive(kw_store *store, int64_t now, int64_t id, int64_t *ttl) {
  kw_lease *lease = kw_leases_find(&store->leases, id);
  *ttl = lease == NULL ? pending_ttl(store, id) : 0;
  if (lease == NULL || is_over(lease, now)) return;
  kw_leases_renew(&store->leases, lease, now);
  *ttl = lease->ttl;
}

static int list_keys(const kw_lease *lease, kw_arena *arena, kw_lease_info *info) {
  kw_key_history **keys;
  if (!kw_lease_list(lease, arena, &keys, &info->n_keys)) return KW_ERR_NO_MEMORY;
  kw_slice *slices = kw_arena_array(arena, info->n_keys, sizeof *slices);
  if (slices == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < info->n_keys; i++) slices[i] = kw_key_history_key(keys[i]);
  info->keys = slices;
  return KW_OK;
}

int kw_store_time_to_live(const kw_store *store, int64_t now, int64_t id, bool keys,
                          kw_arena *arena, kw_lease_info *info) {
  const kw_lease *lease = kw_leases_find(&store->leases, id);
  *info = (kw_lease_info){.id = id, .ttl = -1};
  if (lease == NULL || is_over(lease, now)) return KW_OK;
  info->ttl = (lease->due.when - now) / 1000;
  info->granted_ttl = lease->ttl;
  return keys ? list_keys(lease, arena, info) : KW_OK;
}

int kw_store_leases(const kw_store *store, kw_arena *arena, const int64_t **ids, size_t *n) {
  const kw_lease **list;
  if (!kw_leases_list(&store->leases, arena, &list, n)) return KW_ERR_NO_MEMORY;
  int64_t *found = kw_arena_array(arena, *n, sizeof *found);
  if (found == NULL) return KW_ERR_NO_MEMORY;
  for (size_t i = 0; i < *n; i++) found[i] = list[i]->id;
  *ids = found;
  return KW_OK;
}

/* What is corrupt is not touched by anybody. */
static bool may_expire(const kw_store *store) {
  return store->failure == KW_OK && !is_corrupt(store);
}

/* What is past its time already is revoked again, but not at once. */
static void retry_expiry(kw_store *store) {
  kw_lease *lease;
  while ((lease = kw_leases_first(&store->leases)) != NULL && is_over(lease, store->now))
    kw_heap_move(&store->leases.due, &lease->due, store->now + RETRY_MS);
}

/* Revokes what is past its time, a bounded number; returns whether more is due. A lease for whose keys there is no
 * memory stays, and is tried again later. */
static bool expire(kw_store *store, int64_t now) {
  for (int i = 0; i < LEASES_PER_STEP; i++) {
    kw_lease *lease = kw_leases_first(&store->leases);
    if (lease == NULL || !is_over(lease, now)) return false;
    if (revoke(store, lease) != KW_OK) {
      kw_heap_move(&store->leases.due, &lease->due, now + RETRY_MS);
      continue;
    }
    kw_store_commit(store);
  }
  const kw_lease *lease = kw_leases_first(&store->leases);
  return lease != NULL && is_over(lease, now);
}

/* }====== */

/* {====== Rows ====== */

/* Room for it was made. */
static void write_row(kw_disk *disk, const kw_rows *before, const kw_rows *after, kw_slice name) {
  const kw_row *old = kw_rows_find(before, name), *new = kw_rows_find(after, name);
  if (new != NULL) {
    kw_disk_put_row(disk, new->name, new->bytes);
  } else if (old != NULL) {
    kw_disk_remove_row(disk, old->name);
  }
}

/* A copy is changed, and takes the place of the old one when nothing can fail any more. */
int kw_store_change_rows(kw_store *store, const kw_row_change *changes, size_t n) {
  kw_disk *disk = kw_log_disk(store->log);
  kw_rows after;
  if (store->options.replica) return KW_ERR_READ_ONLY;
  if (store->failure != KW_OK) return store->failure;
  if (disk != NULL && !kw_disk_reserve(disk, n)) return KW_ERR_NO_MEMORY;
  if (!kw_rows_copy(&store->rows, &after)) return KW_ERR_NO_MEMORY;
  int rc = KW_OK;
  for (size_t i = 0; i < n && rc == KW_OK; i++) rc = kw_rows_apply(&after, &changes[i]);
  if (rc != KW_OK) {
    kw_rows_drop(&after);
    return rc;
  }
  for (size_t i = 0; i < n && disk != NULL; i++)
    write_row(disk, &store->rows, &after, changes[i].name);
  kw_rows_drop(&store->rows);
  store->is_asked = true;
  store->rows = after;
  store->alarms = (store->alarms & OWN_ALARMS) | others_of(&after) << KW_ALARM_BITS;
  return KW_OK;
}

int kw_store_rows(const kw_store *store, const kw_rows **rows) {
  *rows = &store->rows;
  return KW_OK;
}

/* }====== */

int64_t kw_store_deadline(const kw_store *store) {
  if (kw_compaction_is_due(store) && store->failure == KW_OK) return INT64_MIN;
  const kw_lease *lease = kw_leases_first(&store->leases);
  int64_t deadline = lease == NULL || !may_expire(store) ? KW_NEVER : lease->due.when;
  bool must_retry = store->is_held && store->failure == KW_OK;
  return must_retry && store->retry_at < deadline ? store->retry_at : deadline;
}

bool kw_store_step(kw_store *store, int64_t now) {
  store->now = now;
  kw_log_release(store->log);
  if (store->failure != KW_OK) return false;
  if (now >= store->retry_at) store->is_held = false;
  bool more = may_expire(store) && expire(store, now);
  if (kw_compaction_is_due(store)) more = kw_compaction_step(store) || more;
  kw_store_flush(store);
  return more;
}

/* Those that are durable, and what the disk itself has raised. */
static unsigned visible_alarms(const kw_store *store) {
  if (!kw_store_is_durable(store)) return store->alarms;
  return (unsigned)kw_log_meta(store->log).alarms | (store->alarms & store->raised);
}

kw_store_status kw_store_get_status(const kw_store *store) {
  int64_t in_use, size = size_of(store, &in_use);
  unsigned alarms = visible_alarms(store);
  return (kw_store_status){.revision = store->revision,
                           .compact_revision = store->compact_revision,
                           .keys = store->index.live,
                           .leases = (int64_t)store->leases.by_id.n,
                           .db_size = size,
                           .db_size_in_use = in_use,
                           .quota = store->options.quota < 0 ? 0 : store->options.quota,
                           .commits = (int64_t)kw_log_commits(store->log),
                           .alarms = all_of(alarms),
                           .own_alarms = alarms & OWN_ALARMS};
}

int64_t kw_store_revision(const kw_store *store) {
  return store->revision;
}

int64_t kw_store_applied(const kw_store *store) {
  return store->applied;
}

int64_t kw_store_compact_revision(const kw_store *store) {
  return store->compact_revision;
}

int64_t kw_store_compact_asked(const kw_store *store) {
  return store->compact_asked;
}

bool kw_store_is_replica(const kw_store *store) {
  return store->options.replica;
}

#ifdef KW_PROBE

kw_disk *kw_store_disk(const kw_store *store) {
  return kw_log_disk(store->log);
}

/* Every change of every key has its record, every record its change, and every lease its keys. */
const char *kw_store_check(const kw_store *store) {
  kw_index_cursor cursor = kw_index_seek(&store->index, kw_slice_of("", 0));
  const kw_key_history *history;
  size_t changes = 0, leased = 0, attached = 0, at = 0;
  const char *fault = kw_index_check(&store->index);
  if (fault == NULL) fault = kw_log_check(store->log);
  if (fault != NULL) return fault;
  if (store->compact_is_stuck && !is_corrupt(store)) return "a compaction is stuck without alarm";
  while ((history = kw_index_next(&cursor)) != NULL) {
    const kw_change *all = kw_key_history_changes(history);
    for (uint32_t i = history->first; i < history->n; i++, changes++) {
      if (kw_store_record(store, &all[i]) == NULL) return "a change without record";
      if (i > history->first && all[i - 1].main > all[i].main) return "changes out of order";
    }
    if (kw_key_history_last(history)->tombstone == kw_key_history_is_live(history))
      return "a wrong state";
    if (history->state.lease == 0) continue;
    const kw_lease *lease = kw_leases_find(&store->leases, history->state.lease);
    if (lease == NULL) return "a key of a lease that is not there";
    if (kw_map_get(&lease->keys, (uint64_t)(uintptr_t)history) != history)
      return "a lease lacks a key";
    leased++;
  }
  const kw_lease *lease;
  while ((lease = kw_map_next(&store->leases.by_id, &at)) != NULL) attached += lease->keys.n;
  if (leased != attached) return "a lease has a key too many";
  if (changes != kw_log_count(store->log)) return "a record without change";
  return store->undo.n == store->undo.committed ? NULL : "an open write";
}

#endif
