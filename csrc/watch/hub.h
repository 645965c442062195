/* SPDX-License-Identifier: MIT
 *
 * hub: brings what happens in a store to those who watch it.
 *
 * Synced watchers are told as revisions become visible, inside of the commit. Lagging ones are brought up in steps:
 * each step walks a bounded part of the log once for all lagging watchers that stand near its beginning.
 * A writer never waits, and what a watcher has missed takes no memory.
 *
 * The hub is the store's driver's door to time: its deadline and its step include the store's.
 * It never calls out: outlets that have something for a reader who asked for it gather in its owner's list, to be
 * drained.
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

/* Attaches to a store, which it outlives in no case. NULL if memory is short. */
kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options);

/* Watchers end; outlets stay, with what they hold, and nothing more will come. */
void kw_hub_free(kw_hub *hub);

/* An outlet belongs to its caller. Closing it cancels its watchers and throws away what it holds. With ids,
 * watchers are found by them; without, it has at most one watcher. When it was armed and gets something it goes into
 * the list `ready`, which lives longer than it. Its account, if it is given one, is charged for it. */
void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids);
void kw_outlet_close(kw_outlet *outlet);

/* Adds a watcher to an outlet. Its events are those after the store's present revision, or from the start
 * revision on: then progress of the whole outlet that waits in it is thrown away, since it would not hold for this
 * watcher. KW_ERR_EMPTY_RANGE, KW_ERR_DUPLICATE_WATCH_ID, KW_ERR_COMPACTED for a negative start,
 * KW_ERR_TOO_MANY_REQUESTS, KW_ERR_NO_MEMORY. */
int kw_hub_watch(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec, kw_watcher **watcher);

/* Ends a watcher: nothing of it comes out of its outlet any more. */
void kw_hub_cancel(kw_hub *hub, kw_watcher *watcher);

/* The watcher of an id, or NULL. */
kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id);

/* Takes the oldest item of an outlet; false if there is none. Watchers that were blocked may go on. */
bool kw_outlet_take(kw_outlet *outlet, kw_item *item);

/* Queues progress at the store's revision, behind all events before it: for one watcher, or for all of an outlet
 * at once. Only if the watcher, or every watcher, is synced and has begun; false if not, or if there is no room. */
bool kw_hub_progress(kw_hub *hub, kw_watcher *watcher);
bool kw_hub_progress_all(kw_hub *hub, kw_outlet *outlet);

/* Asks to be told when an outlet gets something, and who was: each outlet once for each asking. */
void kw_outlet_arm(kw_outlet *outlet);
void kw_outlet_disarm(kw_outlet *outlet); /* nobody waits any more */
kw_outlet *kw_ready_next(kw_ready *ready);

/* When a step is next of use, and a step: the store's own and that of its watchers. */
int64_t kw_hub_deadline(const kw_hub *hub);
bool kw_hub_step(kw_hub *hub, int64_t now);

#ifdef KW_PROBE
const char *kw_hub_check(const kw_hub *hub);
#endif

#endif
