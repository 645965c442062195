/* SPDX-License-Identifier: MIT */
#include "store/alarm.h"

static unsigned merge(unsigned alarms) {
  return (alarms | alarms >> KW_ALARM_BITS) & KW_OWN_ALARMS;
}

bool kw_alarm_is_corrupt(const kw_store *store) {
  return merge(store->alarms) & KW_ALARM_CORRUPT;
}

int kw_alarm_check(const kw_store *store, int64_t cost) {
  if (kw_alarm_is_corrupt(store)) return KW_ERR_CORRUPT;
  return (merge(store->alarms) & KW_ALARM_NO_SPACE) && cost > 0 ? KW_ERR_NO_SPACE : KW_OK;
}

unsigned kw_alarm_visible(const kw_store *store, unsigned *own) {
  unsigned alarms = store->alarms;
  if (store->database != NULL) {
    unsigned by_disk = store->alarms & store->disk_alarms;
    alarms = (unsigned)store->durability.durable.alarms | by_disk;
  }
  *own = alarms & KW_OWN_ALARMS;
  return merge(alarms);
}

/* {====== The store's own alarms ====== */

void kw_alarm_raise(kw_store *store, kw_alarm alarm) {
  if (store->failure == KW_OK) store->alarms |= alarm;
}

void kw_alarm_raise_by_disk(kw_store *store, kw_alarm alarm) {
  kw_alarm_raise(store, alarm);
  store->disk_alarms |= alarm;
}

int kw_store_arm(kw_store *store, kw_alarm alarm) {
  store->durability.is_requested = true;
  kw_alarm_raise(store, alarm);
  return store->failure;
}

int kw_store_disarm_own(kw_store *store, kw_alarm alarm) {
  if (store->failure != KW_OK) return store->failure;
  store->durability.is_requested = true;
  store->alarms &= ~(unsigned)alarm;
  store->disk_alarms &= ~(unsigned)alarm;
  if (alarm == KW_ALARM_CORRUPT) store->compact_is_stuck = false;
  return KW_OK;
}

/* }====== */

/* {====== Alarms of other members ====== */

/* Returns the prefix of the names of the rows with this alarm. */
static kw_slice row_prefix(kw_alarm alarm) {
  static const char no_space[] = "alarms\0no_space/", corrupt[] = "alarms\0corrupt/";
  return alarm == KW_ALARM_NO_SPACE ? kw_slice_of(no_space, sizeof no_space - 1)
                                    : kw_slice_of(corrupt, sizeof corrupt - 1);
}

size_t kw_alarm_count_rows(const kw_rows *rows, kw_alarm alarm, size_t *first) {
  kw_slice prefix = row_prefix(alarm);
  size_t at = *first = kw_rows_seek(rows, prefix);
  while (at < rows->n && kw_slice_begins(kw_blob_slice(rows->items[at].name), prefix)) at++;
  return at - *first;
}

void kw_alarm_read_rows(kw_store *store) {
  size_t first;
  unsigned armed = 0;
  if (kw_alarm_count_rows(&store->rows, KW_ALARM_NO_SPACE, &first) > 0) armed |= KW_ALARM_NO_SPACE;
  if (kw_alarm_count_rows(&store->rows, KW_ALARM_CORRUPT, &first) > 0) armed |= KW_ALARM_CORRUPT;
  store->alarms = (store->alarms & KW_OWN_ALARMS) | armed << KW_ALARM_BITS;
}

/* }====== */
