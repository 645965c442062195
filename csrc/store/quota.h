/* SPDX-License-Identifier: MIT
 *
 * quota: the size of a store, and whether an op is admitted. For the files of this folder only.
 */
#ifndef KW_STORE_QUOTA_H
#define KW_STORE_QUOTA_H

#include "store/state.h"

/* Checks an op before it is evaluated. Returns KW_OK, or an error of kw_store_apply. May arm the alarm
 * KW_ALARM_NO_SPACE, see kw_quota_check. */
int kw_store_admit(kw_store *store, const kw_op *op, kw_arena *arena);

/* Returns the bytes of the store, in the database or in memory; sets *in_use to the part with data. Records that are
 * only in the journal count as if the database had them. */
int64_t kw_quota_size(const kw_store *store, int64_t *in_use);

/* Returns KW_OK if a write of this cost fits. Otherwise arms the alarm KW_ALARM_NO_SPACE and returns
 * KW_ERR_NO_SPACE. `cost` is in bytes, see kw_check_cost. A write of cost 0 always fits. */
int kw_quota_check(kw_store *store, int64_t cost);

#endif
