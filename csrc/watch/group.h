/* SPDX-License-Identifier: MIT
 *
 * group: watchers by what they watch, so that a change finds those that it concerns.
 *
 * Watchers of the same range share a slot. Slots of single keys are found by hash. Slots of ranges form an interval
 * tree: a balanced tree in the order of (key, end), where each node knows the farthest end below it.
 *
 *              [c,g) far m                 what contains "e"? Below a node whose far end is not beyond "e" there is
 *             /           \                nothing, and right of a node whose key is beyond "e" neither: O(log n)
 *     [a,m) far m       [h,k) far k        for each slot found
 *
 * Nodes keep the first bytes of their key and of their farthest end, after what all ranges of the group have in
 * common, as numbers: most steps of a search touch no key.
 */
#ifndef KW_WATCH_GROUP_H
#define KW_WATCH_GROUP_H

#include "watch/watcher.h"

typedef struct kw_group kw_group;

struct kw_slot {
  kw_watcher_list watchers; /* never empty; all have the same range */
  void *pending;            /* the hub's: what it gathers for the slot in one walk */
  kw_slot *next_match;      /* of the slots that the last match found */
  uint32_t hash;            /* of a single key */
  uint32_t height;          /* of a range, in the tree; 0 for a single key */
};

/* NULL if memory is short. */
kw_group *kw_group_new(uint64_t seed);
/* The group must be empty. */
void kw_group_free(kw_group *group);

/* False, with nothing changed, if memory is short. */
bool kw_group_add(kw_group *group, kw_watcher *watcher);
void kw_group_remove(kw_group *group, kw_watcher *watcher);

/* The slots whose range contains `key`, chained by next_match; good until the group changes or the next match. */
kw_slot *kw_group_match(kw_group *group, kw_slice key);

size_t kw_group_count(const kw_group *group);

#ifdef KW_PROBE
/* Whether every invariant of the group holds; else the text of one that does not. */
const char *kw_group_check(const kw_group *group);
#endif

#endif
