/* SPDX-License-Identifier: MIT
 *
 * walk: the events of some revisions, gathered for each watched range of a watch group, then delivered to its watchers.
 * For the hub only.
 *
 * Both ways of delivery use a walk. A commit is a walk of one revision over the synced watchers. Catching up is a walk
 * of many revisions over some of the lagging watchers.
 *
 *   events         2 put a   3 put b   5 put a   5 delete b
 *   range "a"      ^                   ^                      pending: at = 0, 2
 *   range [a,c)    ^         ^         ^         ^            pending: at = 0, 1, 2, 3
 *
 * Watchers of one range with the same filters and prev_kv share one batch. A watcher with next_rev 4 is given that
 * batch from its first event of revision 5 on.
 *
 * A revision with more than long_bytes for one range makes that range's kw_pending *long*: from there on its events are
 * counted, and not kept. The watchers get a long batch (watch/batch.h). The walk must not continue after that
 * revision.
 *
 * The order of calls: kw_walk_add for each event; kw_walk_deliver for each watcher, and kw_walk_done after the watchers
 * of each range, if they have to leave the watch group; at last kw_walk_reset. While a watched range has a kw_pending,
 * its last watcher must not leave the watch group.
 */
#ifndef KW_WATCH_WALK_H
#define KW_WATCH_WALK_H

#include "base/arena.h"
#include "store/store.h"
#include "watch/watch_group.h"
#include "watch/outlet.h"

/* What a walk has gathered for one watched range. */
typedef struct kw_pending kw_pending;

/* All zero but for the first four fields, a walk is empty and ready for use. */
typedef struct kw_walk {
  const kw_store *store;
  size_t long_bytes;    /* a revision with more is long, see kw_hub_options */
  size_t most_matched;  /* limit of `matched` */
  int64_t compacted;    /* compacted revision of the store, for kw_store_previous */
  bool counts_previous; /* most_bytes includes all previous records that a watcher wants */
  kw_arena arena;
  kw_event *events; /* without `prev`; their records are the walk's */
  size_t n;
  size_t cap;
  kw_pending *pending; /* a list, one for each watched range that has events */
  size_t matches;      /* events of all ranges; an event counts once for each range */
  size_t matched;      /* number of ranges for which the last event was added */
  bool is_partial;     /* the last event was not added for all ranges that contain its key */
  size_t lookups;      /* of previous records, for the last event */
  size_t most_bytes;   /* of the range with the most bytes of records; SIZE_MAX if one is long */
} kw_walk;

/* Outcome of a delivery to one watcher. */
typedef enum kw_delivered {
  KW_DELIVERED, /* its batch is in the outlet */
  KW_NO_EVENTS, /* the walk has no event for it */
  KW_REFUSED,   /* the outlet has refused the batch, see kw_outlet_offer */
  KW_NO_MEMORY, /* there was no memory for the batch */
  KW_UNREADABLE /* a record of the batch is damaged */
} kw_delivered;

/* Adds an event for every watched range that contains its key, or for most_matched of them. Returns false if memory is
 * short: then the walk is incomplete, and has to be reset. */
bool kw_walk_add(kw_walk *walk, kw_watch_group *group, const kw_log_entry *entry);

/* Returns the record that the key of an event had before, borrowed as from kw_store_apply. NULL: there was none, or it
 * has been compacted. An empty record: it could not be read. For `compacted` see kw_store_previous. */
kw_blob *kw_walk_previous(const kw_store *store, const kw_event *event, int64_t compacted);

/* True if the watcher's filters let a put, or a delete, through. */
static inline bool kw_walk_is_wanted(const kw_watcher *watcher, bool is_delete) {
  return is_delete ? !watcher->no_delete : !watcher->no_put;
}

/* Offers a watcher of the watch group its events, from its next_rev on. With KW_DELIVERED and KW_NO_EVENTS next_rev
 * stays: the caller raises it where that is needed. With the other outcomes next_rev is raised to the first event that
 * the walk has for the watcher's range and that was not offered, and the watcher's `needs` is set. */
kw_delivered kw_walk_deliver(kw_walk *walk, kw_watcher *watcher);

/* Returns a watched range that has events, or NULL. */
kw_watched *kw_walk_first(const kw_walk *walk);

/* Drops the kw_pending of the range that kw_walk_first returns; there must be one. Its watchers may leave the watch
 * group from then on. */
void kw_walk_done(kw_walk *walk);

/* Drops the kw_pending of a watched range, if it has one: its last watcher leaves the watch group. */
void kw_walk_forget(kw_walk *walk, kw_watched *watched);

/* Drops all events and every kw_pending. The walk can be used again. */
void kw_walk_reset(kw_walk *walk);

/* Frees the memory of a walk that has been reset. */
void kw_walk_drop(kw_walk *walk);

#endif
