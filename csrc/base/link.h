/* SPDX-License-Identifier: MIT
 *
 * link: membership in a list. Links lie inside their owners; a list is a link, too, in a ring with its members, so that
 * any of them leaves without knowing the list.
 */
#ifndef KW_BASE_LINK_H
#define KW_BASE_LINK_H

#include "base/common.h"

typedef struct kw_link {
  struct kw_link *prev;
  struct kw_link *next;
} kw_link;

/* An empty list, or a link that is in none. */
static inline void kw_link_init(kw_link *link) {
  link->prev = link->next = link;
}

static inline bool kw_link_is_alone(const kw_link *link) {
  return link->next == link;
}

/* Leaves its list, if it is in one. */
static inline void kw_link_remove(kw_link *link) {
  link->prev->next = link->next;
  link->next->prev = link->prev;
  kw_link_init(link);
}

/* Becomes the last of a list; it must be in none. */
static inline void kw_link_add(kw_link *list, kw_link *link) {
  link->prev = list->prev;
  link->next = list;
  list->prev->next = link;
  list->prev = link;
}

/* All members of one list move to another one, which is empty. */
static inline void kw_link_move(kw_link *from, kw_link *to) {
  kw_link_init(to);
  if (kw_link_is_alone(from)) return;
  *to = *from;
  to->prev->next = to->next->prev = to;
  kw_link_init(from);
}

#endif
