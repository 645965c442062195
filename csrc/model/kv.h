/* SPDX-License-Identifier: MIT
 *
 * kv: a key with its value, its revisions, its version and its lease. A kw_revision orders all changes of a store.
 */
#ifndef KW_MODEL_KV_H
#define KW_MODEL_KV_H

#include "base/slice.h"

/* All changes of a transaction have the same `main`; `sub` numbers them from 0. */
typedef struct kw_revision {
  int64_t main;
  uint32_t sub;
} kw_revision;

/* The largest numbers that are accepted from a file. Larger ones are refused, so that a store can always continue to
 * count. */
#define KW_MAX_REVISION (INT64_MAX / 2)
#define KW_MAX_SUB (UINT32_MAX - 1)

#define KW_LEASE_MAX_TTL INT64_C(9000000000) /* seconds; etcd's limit */

/* Borrows its slices. */
typedef struct kw_kv {
  kw_slice key;
  kw_slice value;
  int64_t create_revision; /* revision of the put that created the key */
  int64_t mod_revision;    /* revision of the last put */
  int64_t version;         /* number of puts since the key was created, from 1 */
  int64_t lease;           /* id; 0: none */
} kw_kv;

/* Compares `main`, then `sub`. Returns a negative number, 0 or a positive number. */
static inline int kw_revision_compare(kw_revision a, kw_revision b) {
  return a.main != b.main ? kw_order_signed(a.main, b.main) : kw_order_unsigned(a.sub, b.sub);
}

#endif
