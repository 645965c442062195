/* SPDX-License-Identifier: MIT
 *
 * state: the inside of a hub, for the files that make it up.
 *
 *   hub.c        the hub, its outlets and watchers: open, watch, cancel, close
 *   watcher.c    the states of a watcher: every move from one list or watch group to another
 *   delivery.c   delivery to synced watchers, inside the commit
 *   catch_up.c   delivery to lagging watchers, in steps
 *   progress.c   progress, on request and from time to time
 */
#ifndef KW_WATCH_STATE_H
#define KW_WATCH_STATE_H

#include "watch/hub.h"
#include "store/work.h"
#include "watch/walk.h"

struct kw_hub {
  kw_store *store;
  kw_hub_options options;
  kw_watch_group *synced;
  kw_watcher_list lagging;
  kw_walk walk;         /* of delivery; empty between calls, unless the hub is behind */
  kw_outlet *outlets;   /* open outlets */
  kw_outlet *abandoned; /* outlets whose watchers are cancelled in steps */
  size_t n;             /* number of watchers */
  kw_hub_metrics metrics;

  bool is_behind; /* the synced watchers do not have all visible revisions; kw_hub_step continues */
  kw_revision deliver_next; /* if is_behind: where delivery continues, within or after `walk` */
  bool is_inside;           /* `walk` has a part of that revision: its watchers lag */
  bool has_lagged; /* watchers lag because of that revision, and do not catch up before its end */
  kw_watcher *next_watcher; /* next watcher of the first range of `walk`; NULL: its first one */

  kw_watch_group *chosen_group; /* lagging watchers that catch up together */
  kw_watcher **chosen;          /* the same watchers, as an array; NULL until first used */
  size_t n_chosen;              /* 0 between steps, unless a step has ended inside of a revision */
  kw_walk catching_up;          /* of the chosen watchers; empty if there are none */
  size_t walked;                /* number of whole revisions in that walk */
  int64_t walk_from;            /* first revision of that walk */
  kw_revision walk_next;        /* where that walk continues */

  kw_map progress;      /* watchers that want periodic progress, by address */
  size_t progress_at;   /* position of the current round in the map */
  int64_t progress_due; /* when the round begins or continues; INT64_MIN: the next step sets it */
};

/* {====== watcher.c ====== */

/* Makes a watcher of `range`, which is copied; spec->range is not used. next_rev is the start revision. The watcher
 * has no id and no outlet yet, and is in no place. Returns NULL if memory is short. */
kw_watcher *kw_watcher_new(const kw_watch_spec *spec, const kw_range *range);

/* Takes a watcher out of the watch group or list that its state says it is in. The caller then calls one of the
 * kw_watcher_enter functions, or frees or fails the watcher. */
void kw_watcher_leave(kw_hub *hub, kw_watcher *watcher);

/* Makes a watcher that is in no place lagging, at the end of the hub's list. */
void kw_watcher_enter_lagging(kw_hub *hub, kw_watcher *watcher);

/* Makes a watcher that is in no place synced; or lagging, if there is no memory for its place in the watch group. */
void kw_watcher_enter_synced(kw_hub *hub, kw_watcher *watcher);

/* Makes a watcher that is in no place blocked, after its outlet has refused a batch; or lagging, if the outlet is
 * empty: an empty outlet would never unblock the watcher. */
void kw_watcher_enter_refused(kw_hub *hub, kw_watcher *watcher);

/* True if a watcher begins in a gap, where the store does not know all events. (A watcher that begins earlier gets the
 * difference when it reaches the gap.) */
bool kw_watcher_is_in_gap(const kw_hub *hub, const kw_watcher *watcher);

/* Fails a watcher whose history is gone: leaves its place, and queues KW_ITEM_COMPACTED. Without memory for the item
 * the watcher lags, and fails in a later step. */
void kw_watcher_fail_compacted(kw_hub *hub, kw_watcher *watcher);

/* Fails a watcher that needs a damaged record: leaves its place, and queues KW_ITEM_CORRUPT. Without memory for the
 * item the watcher lags, and fails in a later step. */
void kw_watcher_fail_corrupt(kw_hub *hub, kw_watcher *watcher);

/* Makes as many blocked watchers lagging as the outlet has room for. Must be called after items have left an outlet. */
void kw_watcher_unblock(kw_outlet *outlet);

/* }====== */

/* {====== delivery.c ====== */

/* Sets the store's hook, so that every revision that becomes visible is delivered to the synced watchers. */
void kw_delivery_begin(kw_hub *hub);

/* Delivers more of what has become visible to the synced watchers. Must be called while the hub is behind. */
void kw_delivery_step(kw_hub *hub);

/* Adds events of one revision to a walk, for the watchers of `group`: all of them, or as many as walk_visits allows.
 * Subtracts their work from `work`. *entry is the next event of the revision, and moves with the cursor to the first
 * event that was not added for all its watchers; *more, true before, becomes false at the end of the log. Returns false
 * if memory is short or a record cannot be read: then the walk is incomplete, and has to be reset. */
bool kw_delivery_walk_revision(kw_hub *hub, kw_walk *walk, kw_watch_group *group,
                               kw_log_cursor *cursor, kw_log_entry *entry, bool *more,
                               kw_work *work);

/* Delivers the events that a walk has for a watcher, and sets was_refused and is_unreadable. Returns false if they
 * could not be queued: the caller then changes the watcher's state. */
bool kw_deliver(kw_walk *walk, kw_watcher *watcher);

/* }====== */

/* Delivers missed events to some of the lagging watchers. */
void kw_catch_up_step(kw_hub *hub);

/* Does a part of a round of periodic progress. Must be called when progress_due has been reached. */
void kw_progress_step(kw_hub *hub, int64_t now);

#endif
