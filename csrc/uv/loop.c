/* SPDX-License-Identifier: MIT */
#include <uv.h>

#include "uv/loop.h"

#include "base/mem.h"

struct kw_loop {
  uv_loop_t uv;
  uv_timer_t timer;
};

int kw_loop_open(kw_loop **result) {
  kw_loop *loop = kw_alloc_zeroed(sizeof *loop);
  if (loop == NULL) return UV_ENOMEM;
  int rc = uv_loop_init(&loop->uv);
  if (rc < 0) {
    kw_free(loop);
    return rc;
  }
  uv_timer_init(&loop->uv, &loop->timer);
  *result = loop;
  return 0;
}

void kw_loop_close(kw_loop *loop) {
  uv_close((uv_handle_t *)&loop->timer, NULL);
  uv_run(&loop->uv, UV_RUN_DEFAULT); /* lets the handle end */
  uv_loop_close(&loop->uv);
  kw_free(loop);
}

static void on_timer(uv_timer_t *timer) {
  (void)timer; /* the turn ends by itself */
}

void kw_loop_turn(kw_loop *loop, int64_t ms) {
  uv_update_time(&loop->uv);
  if (ms >= 0) uv_timer_start(&loop->timer, on_timer, (uint64_t)ms, 0);
  uv_run(&loop->uv, UV_RUN_ONCE);
  uv_timer_stop(&loop->timer);
}

uint64_t kw_loop_now(void) {
  return uv_hrtime();
}
