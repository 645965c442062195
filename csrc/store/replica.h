/* SPDX-License-Identifier: MIT
 *
 * replica: a store that takes its revisions from upstream.
 *
 *   load(R, kvs)       a base: what exists at R, in key order, each with its own mod_revision <= R
 *   apply(rev, events) what happened at rev; revisions may be missing in between, all fields as given
 *   advance(rev)       upstream has come to rev, and nothing that concerns us happened
 *   replace(R, kvs)    forget everything, then load
 *
 * Below R there is no history, so R counts as compacted: it can be read, and what is before it cannot. History is
 * bounded in bytes: when it grows beyond, the compacted revision moves up by itself.
 */
#ifndef KW_STORE_REPLICA_H
#define KW_STORE_REPLICA_H

#include "store/store.h"

typedef struct kw_replica_event {
  bool is_delete;
  kw_kv kv; /* of a delete, only the key counts */
} kw_replica_event;

/* Each returns KW_ERR_STALE_REVISION for a revision that is not newer than the replica's own (load: older),
 * or KW_ERR_NO_MEMORY; then nothing has changed. Keys are in strict order, revisions positive. */
int kw_replica_load(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n);
int kw_replica_apply(kw_store *store, int64_t rev, const kw_replica_event *events, size_t n);
int kw_replica_advance(kw_store *store, int64_t rev);
int kw_replica_replace(kw_store *store, int64_t rev, const kw_kv *kvs, size_t n);

#endif
