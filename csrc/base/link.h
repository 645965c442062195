/* SPDX-License-Identifier: MIT
 *
 * link: an intrusive, circular, doubly linked list. A link is a part of its owner. The list itself is a link, too, in
 * one ring with its members: a member can be removed without access to the list. All functions are O(1).
 */
#ifndef KW_BASE_LINK_H
#define KW_BASE_LINK_H

#include "base/common.h"

typedef struct kw_link {
  struct kw_link *prev;
  struct kw_link *next;
} kw_link;

/* Makes an empty list, or a link that is in no list. */
static inline void kw_link_init(kw_link *link) {
  link->prev = link->next = link;
}

/* True if a list is empty, or if a link is in no list. */
static inline bool kw_link_is_alone(const kw_link *link) {
  return link->next == link;
}

/* Removes a link from its list, if it is in one. */
static inline void kw_link_remove(kw_link *link) {
  link->prev->next = link->next;
  link->next->prev = link->prev;
  kw_link_init(link);
}

/* Adds a link, which is in no list, to the end of a list. */
static inline void kw_link_add(kw_link *list, kw_link *link) {
  link->prev = list->prev;
  link->next = list;
  list->prev->next = link;
  list->prev = link;
}

/* Moves all members of a list to another list, which is empty or was never initialized. */
static inline void kw_link_move(kw_link *from, kw_link *to) {
  kw_link_init(to);
  if (kw_link_is_alone(from)) return;
  *to = *from;
  to->prev->next = to->next->prev = to;
  kw_link_init(from);
}

#endif
