/* SPDX-License-Identifier: MIT
 *
 * watcher: who wants to know what happens to which keys, from which revision on.
 *
 *                 start in the past
 *                        |
 *        outlet full     v        caught up
 *   BLOCKED <------- LAGGING --------------> SYNCED     start now, or in the future
 *      |  ^------------------------------------+
 *      |   outlet full                                  history is gone or damaged: FAILED, from any state
 *      +--> LAGGING, when the outlet has room again for what it refused, or is empty
 *
 * A watcher that is not synced holds no events, only `next_rev`: the first revision that it has not been told of.
 * It stands in one place at a time: a slot of a group, the hub's list of lagging ones, or its outlet's list of blocked.
 */
#ifndef KW_WATCH_WATCHER_H
#define KW_WATCH_WATCHER_H

#include "model/range.h"

typedef struct kw_watcher kw_watcher;
typedef struct kw_watched kw_watched;
typedef struct kw_outlet kw_outlet;

typedef enum kw_watcher_state {
  KW_WATCHER_LAGGING,
  KW_WATCHER_SYNCED,
  KW_WATCHER_BLOCKED,
  KW_WATCHER_FAILED
} kw_watcher_state;

#define KW_NEEDS_ALL UINT32_MAX /* the outlet has to be empty */

/* A list that its members know their place in, so that each can leave by itself. */
typedef struct kw_watcher_list {
  kw_watcher *first;
  kw_watcher **last; /* where the next one goes; NULL while the list was never used */
} kw_watcher_list;

struct kw_watcher {
  int64_t id;
  int64_t next_rev; /* of a synced watcher: what is before it does not concern it */
  kw_outlet *outlet;
  kw_watched *slot; /* NULL unless it stands in a group */

  kw_watcher *next;  /* in the slot or list where it stands */
  kw_watcher **prev; /* what points to it there */

  uint8_t state; /* kw_watcher_state */
  bool no_put : 1;
  bool no_delete : 1;
  bool prev_kv : 1;
  bool progress : 1;      /* wants progress from time to time */
  bool was_told : 1;      /* of an event, since the last progress */
  bool was_refused : 1;   /* in the present walk */
  bool is_unreadable : 1; /* in the present walk: a record that it needs is damaged */
  bool begins_later : 1;  /* was asked for from a revision on that there was not yet */
  bool fragment : 1;      /* its reader's own: large batches may be split on the wire */
  uint32_t queued;        /* its items in the outlet */
  uint32_t needs;         /* bytes in the outlet for what was refused last, or KW_NEEDS_ALL */
  uint32_t key_len;
  uint32_t end_len;
  uint8_t bytes[]; /* the key and the end of its range */
};

static inline kw_range kw_watcher_range(const kw_watcher *watcher) {
  return (kw_range){.key = {watcher->bytes, watcher->key_len},
                    .end = {watcher->bytes + watcher->key_len, watcher->end_len}};
}

/* Whether it was asked for from a revision on that has not come yet. */
static inline bool kw_watcher_is_early(const kw_watcher *watcher, int64_t revision) {
  return watcher->state == KW_WATCHER_SYNCED && watcher->begins_later &&
         watcher->next_rev > revision;
}

static inline void kw_watcher_list_add(kw_watcher_list *list, kw_watcher *watcher) {
  if (list->first == NULL) list->last = &list->first;
  watcher->next = NULL;
  watcher->prev = list->last;
  *list->last = watcher;
  list->last = &watcher->next;
}

static inline void kw_watcher_list_remove(kw_watcher_list *list, kw_watcher *watcher) {
  *watcher->prev = watcher->next;
  if (watcher->next != NULL) {
    watcher->next->prev = watcher->prev;
  } else {
    list->last = watcher->prev;
  }
}

#endif
