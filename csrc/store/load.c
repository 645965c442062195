/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "store/load.h"

#include "codec/keyvalue.h"
#include "store/write.h"

#define CALL_BYTES (16 << 20) /* a call stops after this many bytes of records */

static int refuse_damaged(const kw_store *store, char text[KW_REASON_ROOM]) {
  snprintf(text, KW_REASON_ROOM, "keywatch: %.360s is damaged", kw_database_path(store->database));
  return KW_ERR_CORRUPT;
}

/* {====== State without history ====== */

static bool is_sound(const kw_commit_meta *meta) {
  return meta->revision >= 1 && meta->revision <= KW_MAX_REVISION && meta->compact_revision >= -1 &&
         meta->compact_revision <= meta->revision && meta->compacted_until >= 0 &&
         meta->compacted_until <= meta->compact_revision + 1;
}

static int load_meta(kw_store *store) {
  const kw_commit_meta *meta = &store->durability.durable;
  if (!is_sound(meta)) return KW_ERR_CORRUPT;
  store->applied = store->revision = meta->revision;
  store->compact_requested = store->compact_revision = meta->compact_revision;
  store->compact_next = (kw_revision){.main = meta->compacted_until};
  store->alarms = (unsigned)meta->alarms;
  return KW_OK;
}

int kw_load_rows(kw_store *store) {
  kw_row_change found = {0};
  int rc = KW_OK;
  while (rc == KW_OK && kw_database_next_row(store->database, &found.name, &found.bytes))
    rc = kw_rows_apply(&store->rows, &found);
  return rc == KW_OK ? kw_database_walk_failure(store->database) : rc;
}

/* Each lease gets its full time from `now` on. */
static int load_leases(kw_store *store, int64_t now) {
  int64_t id, ttl;
  for (const int64_t *after = NULL; kw_database_next_lease(store->database, after, &id, &ttl);
       after = &id) {
    if (id == 0 || ttl <= 0 || ttl > KW_LEASE_MAX_TTL) return KW_ERR_CORRUPT;
    if (kw_leases_add(&store->leases, id, ttl, now) == NULL) return KW_ERR_NO_MEMORY;
  }
  return KW_OK;
}

int kw_load_state(kw_store *store, int64_t now, char text[KW_REASON_ROOM]) {
  int rc = load_meta(store);
  if (rc == KW_OK) rc = load_leases(store, now);
  if (rc == KW_OK) rc = kw_database_walk_failure(store->database);
  if (rc == KW_OK) rc = kw_load_rows(store);
  return rc == KW_OK || rc == KW_ERR_NO_MEMORY ? rc : refuse_damaged(store, text);
}

/* }====== */

/* {====== Records ====== */

/* Checks the properties that later code relies on. */
static bool decode(const kw_store *store, const kw_database_entry *entry, kw_kv *kv) {
  kw_revision rev = entry->rev;
  if (rev.main < 1 || rev.main > store->revision || rev.sub > KW_MAX_SUB) return false;
  if (!kw_keyvalue_has_key(entry->record) || !kw_keyvalue_decode(entry->record, kv)) return false;
  return entry->tombstone || (kv->mod_revision == rev.main && kv->version <= KW_MAX_REVISION);
}

static int load_record(kw_store *store, const kw_database_entry *entry) {
  kw_change change = {
      .main = entry->rev.main, .sub = entry->rev.sub, .tombstone = entry->tombstone};
  kw_kv kv;
  if (!decode(store, entry, &kv)) return KW_ERR_CORRUPT;
  int rc = kw_write_load(store, change, &kv);
  if (rc == KW_OK) kw_log_found(store->log, entry);
  return rc;
}

int kw_store_load(kw_store *store, size_t n, size_t *done, size_t *total,
                  char text[KW_REASON_ROOM]) {
  kw_database_entry entry;
  int rc = KW_OK;
  size_t enough = kw_log_bytes(store->log) + CALL_BYTES;
  *total = store->database == NULL ? 0 : kw_database_records(store->database);
  *done = kw_log_count(store->log);
  for (; n > 0 && *done < *total && rc == KW_OK; n--, ++*done) {
    if (kw_log_bytes(store->log) >= enough) break;
    if (kw_database_next(store->database, store->loading, &entry) <= 0)
      return refuse_damaged(store, text);
    rc = load_record(store, &entry);
    store->loading = (kw_revision){.main = entry.rev.main, .sub = entry.rev.sub + 1};
  }
  return rc == KW_ERR_CORRUPT ? refuse_damaged(store, text) : rc;
}

/* }====== */
