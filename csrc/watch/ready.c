/* SPDX-License-Identifier: MIT */
#include "watch/ready.h"

#include "watch/outlet.h"

void kw_ready_add(kw_outlet *outlet) {
  kw_ready *ready = outlet->ready;
  if (!outlet->is_armed) return;
  if (ready->last == NULL) ready->last = &ready->first;
  outlet->is_armed = false;
  outlet->is_ready = true;
  outlet->next_ready = NULL;
  outlet->prev_ready = ready->last;
  *ready->last = outlet;
  ready->last = &outlet->next_ready;
}

static void remove_ready(kw_outlet *outlet) {
  if (!outlet->is_ready) return;
  *outlet->prev_ready = outlet->next_ready;
  if (outlet->next_ready != NULL) {
    outlet->next_ready->prev_ready = outlet->prev_ready;
  } else {
    outlet->ready->last = outlet->prev_ready;
  }
  outlet->is_ready = false;
}

void kw_outlet_arm(kw_outlet *outlet) {
  if (!outlet->is_ready && outlet->hub != NULL) outlet->is_armed = true;
}

void kw_outlet_disarm(kw_outlet *outlet) {
  outlet->is_armed = false;
  remove_ready(outlet);
}

kw_outlet *kw_ready_next(kw_ready *ready) {
  kw_outlet *outlet = ready->first;
  if (outlet != NULL) remove_ready(outlet);
  return outlet;
}
