/* SPDX-License-Identifier: MIT
 *
 * lessor: grants leases, renews them, and revokes them when they have expired. For the files of this folder only;
 * store.h has the public part, and lease.h the table of leases.
 *
 * Revoking a lease deletes its keys in the same write. Expired leases are revoked in bounded steps; none is revoked
 * while the alarm KW_ALARM_CORRUPT is armed, or once the storage has failed.
 */
#ifndef KW_STORE_LESSOR_H
#define KW_STORE_LESSOR_H

#include "store/state.h"

/* Returns when the first lease expires; or KW_NEVER if there is no lease, or if none may be revoked, see above. */
int64_t kw_lessor_deadline(const kw_store *store);

/* Revokes a bounded number of expired leases. Returns true if more are due. If memory is short, the revocation of a
 * lease is retried after KW_RETRY_MS. */
bool kw_lessor_step(kw_store *store, int64_t now);

#endif
