/* SPDX-License-Identifier: MIT
 *
 * ready: a FIFO of outlets that have received something. It belongs to the owner of the outlets, who drains it.
 *
 *   armed -> an item is queued: in the list -> kw_ready_next -> the owner reads until the outlet is empty, and arms it
 *
 * So an outlet is in its list at most once, however much it receives, and the hub never has to call its owner.
 */
#ifndef KW_WATCH_READY_H
#define KW_WATCH_READY_H

#include "base/common.h"

typedef struct kw_outlet kw_outlet;

/* All zero, the list is empty. */
typedef struct kw_ready {
  kw_outlet *first;
  kw_outlet **last; /* where the next outlet is linked; NULL until the list is first used */
} kw_ready;

/* Arms an outlet: the next item that it receives puts the outlet into its ready list. Does nothing for an outlet that
 * is in the list, or closed. */
void kw_outlet_arm(kw_outlet *outlet);

/* Disarms an outlet, and takes it out of its ready list. */
void kw_outlet_disarm(kw_outlet *outlet);

/* Takes the oldest outlet out of a ready list. Returns NULL if the list is empty. */
kw_outlet *kw_ready_next(kw_ready *ready);

/* For the hub, after it has queued something: puts an armed outlet into its ready list, and disarms it. */
void kw_ready_add(kw_outlet *outlet);

#endif
