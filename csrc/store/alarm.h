/* SPDX-License-Identifier: MIT
 *
 * alarm: the writes that a store refuses while it has no space, or while its data are damaged. For the files of this
 * folder only; store.h has the public part.
 *
 *   KW_ALARM_NO_SPACE   puts and grants fail with KW_ERR_NO_SPACE; deletes and reads still work
 *   KW_ALARM_CORRUPT    writes of keys and leases, and compactions, fail with KW_ERR_CORRUPT; changes of rows and reads
 *                       still work
 *
 * An alarm of another member of a cluster has the same effect as the store's own. It is a row of the table "alarms"
 * with the key no_space/ID or corrupt/ID.
 */
#ifndef KW_STORE_ALARM_H
#define KW_STORE_ALARM_H

#include "store/state.h"

/* Arms an alarm of the store as a background change; kw_store_arm arms it as a requested change (see kw_durability).
 * Does nothing once the storage has failed. */
void kw_alarm_raise(kw_store *store, kw_alarm alarm);

/* Like kw_alarm_raise, after a commit group has failed: the alarm is visible before it is durable. */
void kw_alarm_raise_by_disk(kw_store *store, kw_alarm alarm);

/* Returns KW_OK, or the error of a write that an alarm forbids. `cost` is the size of the write in the quota, or 0 if
 * it needs no space. */
int kw_alarm_check(const kw_store *store, int64_t cost);

/* True if the store or another member has the alarm KW_ALARM_CORRUPT. */
bool kw_alarm_is_corrupt(const kw_store *store);

/* Reads the alarms of other members from the store's rows. Called by kw_store_change_rows. */
void kw_alarm_read_rows(kw_store *store);

/* Returns the number of rows with this alarm of other members. Sets *first to the position of the first one. */
size_t kw_alarm_count_rows(const kw_rows *rows, kw_alarm alarm, size_t *first);

/* Returns the visible alarms of the store and all other members, as kw_alarm bits. Sets *own to those of the store. An
 * alarm of a durable store is visible once it is durable, except after kw_alarm_raise_by_disk. */
unsigned kw_alarm_visible(const kw_store *store, unsigned *own);

#endif
