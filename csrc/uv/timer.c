/* SPDX-License-Identifier: MIT
 *
 * timer: the functions of the loop that connections and listeners use: clock, timers, and readiness of descriptors.
 */
#include <uv.h>

#include "uv/loop.h"

#include "base/clock.h"

int64_t kw_loop_now(kw_loop *loop) {
  if (loop->is_now_stale) loop->now = kw_clock_ns() / 1000000;
  loop->is_now_stale = false;
  return loop->now;
}

int kw_loop_add_timer(kw_loop *loop, kw_timer *timer) {
  if (!kw_heap_reserve(&loop->timers)) return UV_ENOMEM;
  timer->node.when = KW_NEVER;
  kw_heap_add(&loop->timers, &timer->node);
  return 0;
}

void kw_loop_remove_timer(kw_loop *loop, kw_timer *timer) {
  kw_heap_remove(&loop->timers, &timer->node);
}

void kw_loop_set_timer(kw_loop *loop, kw_timer *timer, int64_t when) {
  kw_heap_move(&loop->timers, &timer->node, when);
}

void kw_loop_watch_events(kw_loop *loop, uv_poll_t *poll, int events, uv_poll_cb on_ready) {
  loop->has_changed_events = true;
  if (events == 0) {
    uv_poll_stop(poll);
  } else {
    uv_poll_start(poll, events, on_ready);
  }
}
