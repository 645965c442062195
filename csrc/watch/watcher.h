/* SPDX-License-Identifier: MIT
 *
 * watcher: watches one range of keys, from one revision on.
 *
 *                 start in the past
 *                        |
 *        outlet full     v        caught up
 *   BLOCKED <------- LAGGING --------------> SYNCED     start now, or in the future
 *      |  ^------------------------------------+
 *      |   outlet full                                  history is gone or damaged: FAILED, from any state
 *      +--> LAGGING, when the outlet is at most half full and has room for the refused batch, or is empty
 *
 * A watcher whose batch is refused because memory is short, while its outlet is empty, becomes LAGGING, not BLOCKED:
 * an empty outlet would never wake it.
 *
 * Only a synced watcher gets events inside the commit. A watcher in any other state holds no events. It has only
 * `next_rev`, the first revision that was not delivered to it. It never gets events before `next_rev`.
 *
 * A watcher is in one place at a time: in a watch group while it is synced, in the hub's list while it is lagging, in
 * its outlet's list while it is blocked, in no list after it has failed. A step that catches up chooses some lagging
 * watchers: they leave the hub's list for a separate watch group, until this step or a later one has served them.
 */
#ifndef KW_WATCH_WATCHER_H
#define KW_WATCH_WATCHER_H

#include "base/link.h"
#include "model/range.h"

typedef struct kw_watcher kw_watcher;
typedef struct kw_watched kw_watched;
typedef struct kw_outlet kw_outlet;

typedef enum kw_watcher_state {
  KW_WATCHER_LAGGING,
  KW_WATCHER_SYNCED,
  KW_WATCHER_BLOCKED,
  KW_WATCHER_FAILED,
  KW_WATCHER_STATES
} kw_watcher_state;

#define KW_NEEDS_ALL UINT32_MAX /* the outlet has to be empty */

/* A FIFO of watchers. A watcher leaves it in constant time. All zero, the list is empty. */
typedef struct kw_watcher_list {
  kw_watcher *first;
  kw_watcher **last; /* where the next watcher is linked; NULL until the list is first used */
} kw_watcher_list;

struct kw_watcher {
  int64_t id;       /* unique in its outlet, if that has ids */
  int64_t next_rev; /* first revision not delivered; while synced, possibly an earlier one */
  kw_outlet *outlet;
  kw_watched *watched; /* its range in a watch group; NULL unless it is in one */

  kw_watcher *next;  /* in its watched range or list */
  kw_watcher **prev; /* the pointer in that list to this watcher */
  kw_link early;     /* in its outlet's list of watchers that begin later, or in no list */

  uint8_t state; /* kw_watcher_state */
  bool no_put : 1;
  bool no_delete : 1;
  bool prev_kv : 1;
  bool progress : 1;      /* wants periodic progress */
  bool got_events : 1;    /* has got an event since the last round of progress */
  bool was_refused : 1;   /* in the current walk: its batch was not queued */
  bool is_unreadable : 1; /* in the current walk: a record that it needs, or may need, is damaged */
  bool begins_later : 1;  /* was started at a later revision; may be false once that exists */
  bool fragment : 1;      /* for its reader: large batches may be split on the wire */
  uint32_t queued;        /* its items in the outlet */
  uint32_t needs;         /* bytes that the batch refused last needs, or KW_NEEDS_ALL */
  uint32_t key_len;
  uint32_t end_len;
  uint8_t bytes[]; /* the key and the end of its range */
};

/* Returns the watcher's range: slices of its own bytes. */
static inline kw_range kw_watcher_range(const kw_watcher *watcher) {
  return (kw_range){.key = {watcher->bytes, watcher->key_len},
                    .end = {watcher->bytes + watcher->key_len, watcher->end_len}};
}

/* True if the watcher was started at a revision after `revision`, and so has not begun. */
static inline bool kw_watcher_is_early(const kw_watcher *watcher, int64_t revision) {
  bool may_begin = watcher->state == KW_WATCHER_SYNCED || watcher->state == KW_WATCHER_LAGGING;
  return may_begin && watcher->begins_later && watcher->next_rev > revision;
}

/* Adds a watcher, which must be in no list, at the end of a list. */
static inline void kw_watcher_list_add(kw_watcher_list *list, kw_watcher *watcher) {
  if (list->first == NULL) list->last = &list->first;
  watcher->next = NULL;
  watcher->prev = list->last;
  *list->last = watcher;
  list->last = &watcher->next;
}

/* Removes a watcher from `list`, which must be the list that it is in. */
static inline void kw_watcher_list_remove(kw_watcher_list *list, kw_watcher *watcher) {
  *watcher->prev = watcher->next;
  if (watcher->next != NULL) {
    watcher->next->prev = watcher->prev;
  } else {
    list->last = watcher->prev;
  }
}

#endif
