/* SPDX-License-Identifier: MIT
 *
 * hub: delivers the changes of a store to its watchers.
 *
 * Synced watchers get events inside the commit, as soon as a revision becomes visible. If there are many watchers, or
 * a commit group has many revisions, later steps deliver the rest. Lagging watchers catch up in steps: each step walks
 * a bounded part of the log once, for all lagging watchers that are near the start of that part. A writer never waits
 * for a watcher, and the events that a watcher has missed take no memory.
 *
 * The hub's deadline and step include the store's. The hub calls none of its users: an armed outlet that has received
 * something enters its owner's ready list (watch/ready.h), and the owner drains that list.
 */
#ifndef KW_WATCH_HUB_H
#define KW_WATCH_HUB_H

#include "store/store.h"
#include "watch/outlet.h"

#define KW_DEFAULT_PROGRESS_MS (10 * 60 * 1000)

typedef struct kw_hub_options {
  size_t walk_revisions; /* limit of revisions in a step, so also in a batch of a lagging watcher */
  size_t walk_bytes;     /* limit of one range's bytes in a step; the last revision may exceed it */
  size_t long_bytes;     /* a revision with more bytes for one range is delivered as a long batch */
  size_t walk_watchers;  /* limit of watchers that a step looks at */
  /* Limit of visits (store/work.h) within one revision; a step that has made as many begins no other revision. */
  int64_t walk_visits;
  int64_t progress_ms; /* period of progress, for watchers that want it and got no events */
  uint64_t hash_seed;  /* secret seed of the hashes of watch groups and outlets */
} kw_hub_options;

typedef struct kw_watch_spec {
  kw_range range;         /* an empty key means the smallest key, as in etcd */
  int64_t start_revision; /* 0: after the store's revision */
  int64_t id;             /* 0: the outlet chooses one */
  bool no_put;
  bool no_delete;
  bool prev_kv;
  bool progress; /* wants periodic progress */
  bool fragment; /* for the reader: large batches may be split on the wire */
} kw_watch_spec;

typedef struct kw_hub_metrics {
  kw_outlet_totals outlets;
  size_t watchers[KW_WATCHER_STATES]; /* by state */
  size_t streams;                     /* open outlets with ids */
} kw_hub_metrics;

/* Returns the default options. The seed is 0: the caller sets it. */
kw_hub_options kw_hub_defaults(void);

/* Makes the hub of a store, and sets the store's hook. The options are copied. A store has at most one hub, which
 * must be freed before the store. Returns NULL if memory is short. */
kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options);

/* Closes all outlets of the hub, removes the store's hook, and frees the hub. Does not free the outlets, whose memory
 * belongs to their openers. */
void kw_hub_free(kw_hub *hub);

/* Initializes an outlet, whose memory belongs to the caller, and opens it, not armed. With ids, watchers are found by
 * their id; without ids, the outlet has at most one watcher. An armed outlet that receives something enters `ready`,
 * which must outlive the outlet. max_bytes is the limit of queued items, see watch/outlet.h. The caller may set
 * outlet->tag, and before the first watcher outlet->account: the account is then charged for watchers and items. */
void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids);

/* Cancels all watchers of the outlet, drops its items, and takes it out of its ready list. Closing a closed outlet
 * does nothing. */
void kw_outlet_close(kw_outlet *outlet);

/* Closes an open outlet that may have many watchers. Later steps of the hub cancel them; until then the outlet belongs
 * to the hub. When no watcher is left, a step, kw_hub_free, or this function before it returns, calls
 * outlet->on_closed, which must be set, and may free the outlet. The charge of the watchers passes to `account`, which
 * is credited as they are cancelled. */
void kw_outlet_abandon(kw_outlet *outlet, kw_account *account);

/* Abandoned outlets no longer credit `account`. */
void kw_hub_forget_account(kw_hub *hub, const kw_account *account);

/* Adds a watcher to an open outlet of this hub. The watcher gets events after the store's present revision, or from the
 * start revision on. The range is copied. *watcher belongs to the hub, and is valid until it is cancelled or its outlet
 * is closed, also after it has failed. If the start is in the past, the queued progress of the whole outlet is dropped:
 * it would not be true of this watcher. A start whose history is gone is not an error here: the watcher fails with
 * KW_ITEM_COMPACTED. Returns KW_OK, KW_ERR_EMPTY_RANGE, KW_ERR_DUPLICATE_WATCH_ID, KW_ERR_COMPACTED for a negative
 * start, KW_ERR_TOO_MANY_REQUESTS if the outlet's account gets no more memory, or KW_ERR_NO_MEMORY. */
int kw_hub_watch(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec, kw_watcher **watcher);

/* Returns what the hub counts and holds. O(1). */
kw_hub_metrics kw_hub_get_metrics(const kw_hub *hub);

/* True if later steps of the hub may have events for a watcher: the watcher lags or is blocked, or synced
 * watchers do not have all visible revisions yet. An empty outlet then does not mean that the watcher has every
 * event. */
bool kw_hub_is_behind(const kw_hub *hub, const kw_watcher *watcher);

/* Ends and frees a watcher, also one that has failed. Its queued items are dropped. */
void kw_hub_cancel(kw_hub *hub, kw_watcher *watcher);

/* Returns the watcher of an id, or NULL. In an outlet without ids, returns its only watcher. */
kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id);

/* Takes the oldest item of an outlet. The caller releases item->batch, if it is not NULL. Returns false if the
 * outlet is empty. Blocked watchers may resume afterwards. */
bool kw_outlet_take(kw_outlet *outlet, kw_item *item);

/* For a reader that cannot take a long batch of revision `rev`, since the history has changed: drops the watcher's
 * queued events and progress. Unless the watcher has failed, lets it lag from `rev` on, and drops progress of the whole
 * outlet, too. A later step fails the watcher if the history is gone. */
void kw_hub_deliver_again(kw_hub *hub, kw_watcher *watcher, int64_t rev);

/* For a reader that has taken a part of a long batch, and cannot take the rest: drops the watcher's queued events and
 * progress, and fails the watcher, unless it has failed. `rc` says why: KW_ERR_COMPACTED or KW_ERR_CORRUPT. If memory
 * is short, a later step fails the watcher, as compacted. */
void kw_hub_fail(kw_hub *hub, kw_watcher *watcher, int rc);

/* Queues progress at the store's revision for one watcher, behind its events. Returns false, with nothing queued, if
 * the watcher is behind (kw_hub_is_behind), has failed, or begins after the next revision, or if the outlet is closed
 * or refuses the item. */
bool kw_hub_progress(kw_hub *hub, kw_watcher *watcher);

/* Queues progress at the store's revision for all watchers of an open outlet, as one item behind their events. Returns
 * false, with nothing queued, if a watcher is behind (kw_hub_is_behind), has failed, or begins after the next revision,
 * or if the outlet has no watcher or refuses the item. */
bool kw_hub_progress_all(kw_hub *hub, kw_outlet *outlet);

/* Returns when kw_hub_step next has something to do, in milliseconds of the store's clock: the store's deadline
 * included. INT64_MIN: at once. KW_NEVER: nothing is pending. */
int64_t kw_hub_deadline(const kw_hub *hub);

/* Does a bounded part of what is due: the store's step, the watchers of abandoned outlets, delivery to synced and
 * lagging watchers, periodic progress. Returns whether more is due. */
bool kw_hub_step(kw_hub *hub, int64_t now);

#endif
