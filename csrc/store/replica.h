/* SPDX-License-Identifier: MIT
 *
 * replica: a store that takes its revisions from upstream.
 *
 *   load(R, kvs)       sets the base: all kvs at R, in the order of keys, each with its own mod_revision <= R. Once,
 *                      and before the first watch
 *   apply(rev, events) adds the events of rev, with all fields as given; revisions may be missing in between
 *   advance(rev)       upstream is at rev, and there were no events for this replica
 *   merge(R, kvs)      continues at R, though the events up to R are not known: makes up events that lead there
 *
 * A replica has no history before its base: the compacted revision is then R. When the history exceeds the options
 * history_bytes, history_revisions or history_age_ms of the store, the compacted revision rises: see store/retention.h.
 *
 * Functions that return `int` return KW_OK; or KW_ERR_STALE_REVISION or KW_ERR_NO_MEMORY, and then nothing has changed,
 * except that a merge in turns may have been completed. The store must be a replica, revisions must be positive, and
 * the keys of kvs in strict order. Kvs and events are copied. Records that were borrowed from the store are no longer
 * valid.
 */
#ifndef KW_STORE_REPLICA_H
#define KW_STORE_REPLICA_H

#include "store/store.h"
#include "store/work.h"

typedef struct kw_replica_event {
  bool is_delete;
  kw_kv kv; /* of a delete only the key counts */
} kw_replica_event;

/* Adds the events of one revision. The hook on_visible is called. KW_ERR_STALE_REVISION if `rev` is not newer than
 * the replica's revision. */
int kw_replica_apply(kw_store *store, int64_t rev, const kw_replica_event *events, size_t n);

/* Moves the replica to a revision without events. The hook on_visible is called. KW_ERR_STALE_REVISION if `rev` is
 * not newer than the replica's revision. */
int kw_replica_advance(kw_store *store, int64_t rev);

typedef enum kw_replica_how {
  /* Sets the base. KW_ERR_STALE_REVISION if the replica has a base, or a later revision. */
  KW_REPLICA_LOAD,
  /* Brings the replica to `rev`, at which its keys were kvs. A key that is new, or has another mod_revision, gets an
   * event of its mod_revision; a key that is gone gets a delete of `rev`. So watchers receive the difference in the
   * order of revisions. The content between the old revision and `rev` stays unknown (a gap): it cannot be read, and no
   * watch can begin there. Only one gap is kept: an older gap, and the history before it, is compacted.
   * KW_ERR_STALE_REVISION if `rev` is older than the replica's revision, or if the kvs show that the replica has
   * another history: it lacks, or has differently, a change that is not newer than its revision. */
  KW_REPLICA_MERGE
} kw_replica_how;

/* Fills the replica with the kvs of revision `rev`, in one piece. */
int kw_replica_use(kw_store *store, kw_replica_how how, int64_t rev, const kw_kv *kvs, size_t n);

/* {====== In turns ====== */

/* A kw_replica_use that takes several turns. Until it is done, readers and watchers see the replica as it was before.
 * While a merge is being written, the store is busy. */
typedef struct kw_replica_fill kw_replica_fill;

/* Begins a fill. The kvs, and the bytes that they point to, must stay until the fill is freed. An earlier fill of this
 * store fails. Returns NULL, with nothing changed, if memory is short. */
kw_replica_fill *kw_replica_fill_new(kw_store *store, kw_replica_how how, int64_t rev,
                                     const kw_kv *kvs, size_t n);

/* Continues a fill. Returns KW_UNFINISHED, or what kw_replica_use returns; KW_ERR_STALE_REVISION also if the replica
 * has changed otherwise since the fill began. */
int kw_replica_fill_step(kw_replica_fill *fill, kw_work *work);

/* True if the fill fills this store, in this way, and is not done. */
bool kw_replica_fill_is_of(const kw_replica_fill *fill, const kw_store *store, kw_replica_how how);

/* Frees a fill, whose store may have been freed already. A fill that is not done leaves the replica as it was. */
void kw_replica_fill_free(kw_replica_fill *fill);

/* Completes a merge that is being written, in one piece. For kw_store_finish. */
void kw_replica_finish(kw_store *store);

/* Fails the fill of a store, if there is one. For kw_store_free. */
void kw_replica_detach(kw_store *store);

/* }====== */

/* Returns the revision of the last event, or of the base if there was none since. The content is the same as long as
 * the revision is. */
int64_t kw_replica_changed_revision(const kw_store *store);

#endif
