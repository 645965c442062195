/* SPDX-License-Identifier: MIT
 *
 * group: watchers by what they watch, so that a change finds those that it concerns.
 *
 * Watchers of the same range share a slot. Slots of single keys are found by the hash of the key. The keys of a range
 * all begin with what its two ends have in common, its stem; ranges are filed under their stem, again by hash, and
 * a key asks at each of its own beginnings whose length is in use:
 *
 *   ranges   [/a/1, /a/2) and [/a/2, /a/5) under "/a/"     [/a/1/x, /a/1/y) under "/a/1/"     [b, end) under ""
 *   key      /a/1/k asks at "", "/a/" and "/a/1/"
 *
 * Ranges of one stem form an interval tree: a balanced tree in the order of (key, end), where each node knows the
 * farthest end below it. What contains a key is found in O(log n) for each slot found, and most often there is
 * one range to a stem, and nothing to look at for a key that nobody watches.
 */
#ifndef KW_WATCH_WATCH_GROUP_H
#define KW_WATCH_WATCH_GROUP_H

#include "watch/watcher.h"

typedef struct kw_watch_group kw_watch_group;

struct kw_watched {
  kw_watcher *first; /* never NULL; all watchers of a slot have the same range */
  void *pending;     /* the hub's: what it gathers for the slot in one walk */
  uint32_t hash;     /* of the first `len` bytes of the range's key */
  uint32_t len;      /* the whole key, or the stem */
};

/* What a match found, until the next match or change of the group. */
typedef struct kw_match {
  kw_watched **slots;
  size_t n;
} kw_match;

/* NULL if memory is short. */
kw_watch_group *kw_watch_group_new(uint64_t seed);
/* The group must be empty. */
void kw_watch_group_free(kw_watch_group *group);

/* False, with nothing changed, if memory is short. */
bool kw_watch_group_add(kw_watch_group *group, kw_watcher *watcher);
void kw_watch_group_remove(kw_watch_group *group, kw_watcher *watcher);

/* The slots whose range contains `key`; false if memory is short. */
bool kw_watch_group_match(kw_watch_group *group, kw_slice key, kw_match *match);

size_t kw_watch_group_count(const kw_watch_group *group);

#ifdef KW_PROBE
/* Whether every invariant of the group holds; else the text of one that does not. */
const char *kw_watch_group_check(const kw_watch_group *group);
#endif

#endif
