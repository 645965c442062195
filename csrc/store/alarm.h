/* SPDX-License-Identifier: MIT
 *
 * alarm: what a store refuses while it has no space, or while its data are damaged. For the files of this folder
 * only; store.h has the public part.
 *
 *   KW_ALARM_NO_SPACE   puts and grants fail with KW_ERR_NO_SPACE; deletes and reads go on
 *   KW_ALARM_CORRUPT    all writes fail with KW_ERR_CORRUPT; reads go on
 *
 * An alarm of another member of a cluster has the same effect as the store's own. It is a row of the table "alarms"
 * with the key no_space/ID or corrupt/ID.
 */
#ifndef KW_STORE_ALARM_H
#define KW_STORE_ALARM_H

#include "store/state.h"

/* Raises an alarm of the store as a background change. Does nothing once the storage has failed. */
void kw_alarm_raise(kw_store *store, kw_alarm alarm);

/* The same after a commit group has failed: the alarm is visible before it is durable. */
void kw_alarm_raise_by_disk(kw_store *store, kw_alarm alarm);

/* Returns KW_OK, or why an alarm forbids a write. `cost` is what the quota counts for the write: 0 if it needs no
 * space. */
int kw_alarm_check(const kw_store *store, int64_t cost);

/* True if the store or another member has the alarm KW_ALARM_CORRUPT. */
bool kw_alarm_is_corrupt(const kw_store *store);

/* Takes the alarms of other members from the store's rows. */
void kw_alarm_read_rows(kw_store *store);

/* Returns the visible alarms of the store and all other members. *own becomes those of the store. */
unsigned kw_alarm_visible(const kw_store *store, unsigned *own);

#endif
