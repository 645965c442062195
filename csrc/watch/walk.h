/* SPDX-License-Identifier: MIT
 *
 * walk: events of some revisions, sorted out to the slots of a group that they concern, and told to its watchers.
 *
 * Both ways of telling go through it: a commit is a walk of one revision over the synced watchers, catching up is one
 * of many revisions over some of the lagging. For the hub only.
 *
 *   events    2 put a   3 put b   5 put a   5 delete b
 *   slot "a"  ^                   ^                      at = 0, 2
 *   slot [a,c)^         ^         ^         ^            at = 0, 1, 2, 3
 *
 * Watchers of a slot that want the same share one batch; one with next_rev 4 is given it from 5 on.
 */
#ifndef KW_WATCH_WALK_H
#define KW_WATCH_WALK_H

#include "base/arena.h"
#include "store/store.h"
#include "watch/watch_group.h"
#include "watch/outlet.h"

typedef struct kw_walk_watched kw_walk_watched;

typedef struct kw_walk {
  const kw_store *store;
  kw_arena arena;
  kw_event *events; /* borrowed from the log, without `prev` */
  size_t n;
  size_t cap;
  kw_walk_watched *slots; /* those that were concerned */
  size_t matches;         /* events times slots */
  size_t most_bytes;      /* of the slot that has the most */
} kw_walk;

typedef enum kw_told {
  KW_TOLD,      /* the outlet took it */
  KW_UNTOLD,    /* there was nothing to tell */
  KW_REFUSED,   /* the outlet is full */
  KW_NO_MEMORY, /* there was not enough to make the batch */
  KW_UNREADABLE /* a record of the batch is damaged */
} kw_told;

/* Adds an event and finds whom it concerns; false if memory is short. */
bool kw_walk_add(kw_walk *walk, kw_watch_group *group, const kw_log_entry *entry);

/* Tells a watcher of the group what concerns it. If that fails, its next_rev is where it has to go on. */
kw_told kw_walk_tell(kw_walk *walk, kw_watcher *watcher);

/* A slot that was concerned, or NULL; and letting go of that slot, after which the group may do without it. */
kw_watched *kw_walk_first(const kw_walk *walk);
void kw_walk_done(kw_walk *walk);

/* Ends the walk, and lets go of all slots. */
void kw_walk_reset(kw_walk *walk);
void kw_walk_drop(kw_walk *walk);

#endif
