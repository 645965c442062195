/* SPDX-License-Identifier: MIT
 *
 * hub: delivers the changes of a store to its watchers.
 *
 * Synced watchers are told inside the commit, as soon as a revision becomes visible. Lagging watchers are brought up in
 * steps: each step walks a bounded part of the log once, for all lagging watchers that stand near its beginning. A
 * writer never waits for a watcher, and what a watcher has missed takes no memory.
 *
 * The hub's deadline and step cover those of the store. The hub never calls out: an outlet that was armed and has
 * received something enters its owner's ready list, and the owner drains that list.
 */
#ifndef KW_WATCH_HUB_H
#define KW_WATCH_HUB_H

#include "store/store.h"
#include "watch/outlet.h"

#define KW_DEFAULT_PROGRESS_MS (10 * 60 * 1000)

typedef struct kw_hub_options {
  size_t walk_revisions; /* at most in a batch of a lagging watcher, and in a step */
  size_t walk_bytes;     /* the same, in bytes */
  size_t walk_watchers;  /* at most in a step */
  int64_t progress_ms;   /* how often idle watchers that want progress get it */
  uint64_t seed;
} kw_hub_options;

typedef struct kw_watch_spec {
  kw_range range;         /* an empty key is the least of all, as in etcd */
  int64_t start_revision; /* 0: from now on */
  int64_t id;             /* 0: the outlet chooses */
  bool no_put;
  bool no_delete;
  bool prev_kv;
  bool progress;
  bool fragment; /* its reader's own */
} kw_watch_spec;

kw_hub_options kw_hub_defaults(void);

/* Makes the hub of a store. The hub must be freed before the store. Returns NULL if memory is short. */
kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options);

/* Closes all outlets of the hub, and frees the hub. The memory of an outlet is its caller's, and stays. */
void kw_hub_free(kw_hub *hub);

/* Opens an outlet, whose memory belongs to the caller. With ids, watchers are found by their id; without ids, the
 * outlet has at most one watcher. An armed outlet that receives something enters `ready`, which must outlive the
 * outlet. The caller may set outlet->account afterwards: the account is then charged for watchers and items. */
void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids);

/* Cancels all watchers of the outlet, and drops its items. Closing twice is fine. */
void kw_outlet_close(kw_outlet *outlet);

/* Adds a watcher to an outlet. The watcher is told events after the store's present revision, or from the start
 * revision on. A start in the past drops progress of the whole outlet that is queued: it would not be true of this
 * watcher. Errors: KW_ERR_EMPTY_RANGE, KW_ERR_DUPLICATE_WATCH_ID, KW_ERR_COMPACTED for a negative start,
 * KW_ERR_TOO_MANY_REQUESTS, KW_ERR_NO_MEMORY. */
int kw_hub_watch(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec, kw_watcher **watcher);

/* Ends and frees a watcher. Its queued items are dropped. */
void kw_hub_cancel(kw_hub *hub, kw_watcher *watcher);

/* Returns the watcher of an id, or NULL. */
kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id);

/* Takes the oldest item of an outlet. Returns false if the outlet is empty. Blocked watchers may go on afterwards. */
bool kw_outlet_take(kw_outlet *outlet, kw_item *item);

/* Queues progress at the store's revision for one watcher, behind its events. Returns false, with nothing queued, if
 * the watcher is not synced, begins at a later revision, or its outlet has no room. */
bool kw_hub_progress(kw_hub *hub, kw_watcher *watcher);

/* Queues progress for all watchers of an outlet as one item. Returns false if this does not hold for each of them, if
 * there are none, or if the outlet has no room. */
bool kw_hub_progress_all(kw_hub *hub, kw_outlet *outlet);

/* Arms an outlet: the next item that it receives puts the outlet into its ready list, once. */
void kw_outlet_arm(kw_outlet *outlet);

/* Disarms an outlet, and takes it out of its ready list. */
void kw_outlet_disarm(kw_outlet *outlet);

/* Takes the oldest outlet out of a ready list. Returns NULL if the list is empty. */
kw_outlet *kw_ready_next(kw_ready *ready);

/* Returns when kw_hub_step next has something to do: the store's deadline included. KW_NEVER: nothing is pending. */
int64_t kw_hub_deadline(const kw_hub *hub);

/* Does a bounded part of what is due: the store's step, lagging watchers, periodic progress. Returns whether more is
 * due. */
bool kw_hub_step(kw_hub *hub, int64_t now);

#ifdef KW_PROBE
const char *kw_hub_check(const kw_hub *hub);
#endif

#endif
