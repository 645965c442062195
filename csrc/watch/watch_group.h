/* SPDX-License-Identifier: MIT
 *
 * watch_group: watchers filed by range, so that a change finds the watchers of its key.
 *
 * Watchers of the same range share one kw_watched. A watched range of a single key is found by the hash of the key.
 * The keys of any other range all begin with the bytes that its key and its end have in common: the stem. Such a range
 * is filed under its stem, again by hash. A key is looked up under each of its own prefixes whose length is in use:
 *
 *   ranges   [/a/1, /a/2) and [/a/2, /a/5) under "/a/"     [/a/1/x, /a/1/y) under "/a/1/"     [b, end) under ""
 *   key      /a/1/k is looked up under "", "/a/" and "/a/1/"
 *
 * The ranges of one stem form an interval tree: a balanced tree in the order of (key, end), in which each node knows
 * the farthest end below it. Each range that contains a key is found in O(log n). Most often a stem has one range, and
 * the lookup of a key without a watcher ends at a tag of the hash table.
 */
#ifndef KW_WATCH_WATCH_GROUP_H
#define KW_WATCH_WATCH_GROUP_H

#include "watch/watcher.h"

typedef struct kw_watch_group kw_watch_group;

/* One watched range with its watchers. The watch group makes it with its first watcher, frees it with its last. */
struct kw_watched {
  kw_watcher *first; /* never NULL; all watchers have the same range */
  void *pending;     /* for the walk: the kw_pending of this range; NULL outside a walk */
  uint32_t hash;     /* of the first `len` bytes of the range's key */
  uint32_t len;      /* of the key, or of the stem */
};

/* Result of a match. It stays valid until the next match, or the next change of the watch group. */
typedef struct kw_match {
  kw_watched **watched;
  size_t n;
  bool is_partial; /* there are more */
} kw_match;

/* Makes an empty watch group. `seed` is that of the hashes, see base/hash.h. Returns NULL if memory is short. */
kw_watch_group *kw_watch_group_new(uint64_t seed);

/* Frees a watch group, which must be empty. */
void kw_watch_group_free(kw_watch_group *group);

/* Adds a watcher, which must be in no watch group and no list, and sets watcher->watched. Does not own the watcher.
 * Returns false, with nothing changed, if memory is short. */
bool kw_watch_group_add(kw_watch_group *group, kw_watcher *watcher);

/* Removes a watcher from the watch group that it is in. */
void kw_watch_group_remove(kw_watch_group *group, kw_watcher *watcher);

/* Finds every watched range that contains `key`, `most` of them at most. Returns false, with some of them in *match, if
 * memory is short. */
bool kw_watch_group_match(kw_watch_group *group, kw_slice key, size_t most, kw_match *match);

/* Returns the number of watchers. */
size_t kw_watch_group_count(const kw_watch_group *group);

#endif
