/* SPDX-License-Identifier: MIT */
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "uv/loop.h"

#include "base/mem.h"
#include "uv/connection.h"
#include "uv/dialed.h"
#include "uv/hosted.h"

static const struct {
  const char *name;
  int number;
} signals[KW_SIGNALS] = {{"SIGHUP", SIGHUP}, {"SIGINT", SIGINT}, {"SIGTERM", SIGTERM}};

/* {====== Time ====== */

static int64_t clock_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t kw_loop_now(kw_loop *loop) {
  if (loop->is_stale) loop->now = clock_ms();
  loop->is_stale = false;
  return loop->now;
}

int kw_loop_add_due(kw_loop *loop, kw_due *due) {
  if (!kw_heap_reserve(&loop->dues)) return UV_ENOMEM;
  due->node.when = KW_NEVER;
  kw_heap_add(&loop->dues, &due->node);
  return 0;
}

void kw_loop_remove_due(kw_loop *loop, kw_due *due) {
  kw_heap_remove(&loop->dues, &due->node);
}

static kw_due *first_due(const kw_loop *loop) {
  kw_heap_node *node = kw_heap_first(&loop->dues);
  return node == NULL ? NULL : KW_CONTAINER_OF(node, kw_due, node);
}

/* Whoever wants to be called again at once is so in the next iteration. */
static void call_due(kw_loop *loop) {
  int64_t now = kw_loop_now(loop);
  for (size_t n = loop->dues.n; n > 0; n--) {
    kw_due *due = first_due(loop);
    if (due == NULL || due->node.when > now) return;
    kw_loop_set_due(loop, due, KW_NEVER);
    due->on_due(due, now);
  }
}

/* }====== */

/* {====== Signals ====== */

static void on_signal(uv_signal_t *uv, int number) {
  (void)number;
  KW_CONTAINER_OF(uv, kw_signal, uv)->n++;
}

int kw_loop_find_signal(const char *name) {
  for (int i = 0; i < KW_SIGNALS; i++) {
    if (strcmp(signals[i].name, name) == 0) return i;
  }
  return -1;
}

static void init_signals(kw_loop *loop) {
  if (loop->has_signals) return;
  for (int i = 0; i < KW_SIGNALS; i++) uv_signal_init(&loop->uv, &loop->signals[i].uv);
  loop->has_signals = true;
}

int kw_loop_watch_signals(kw_loop *loop, const bool wanted[KW_SIGNALS]) {
  int rc = 0;
  init_signals(loop);
  for (int i = 0; i < KW_SIGNALS && rc == 0; i++) {
    uv_signal_t *uv = &loop->signals[i].uv;
    if (wanted[i]) {
      rc = uv_signal_start(uv, on_signal, signals[i].number);
    } else {
      uv_signal_stop(uv);
      loop->signals[i].n = 0;
    }
  }
  return rc;
}

const char *kw_loop_next_signal(kw_loop *loop) {
  for (int i = 0; i < KW_SIGNALS; i++) {
    if (loop->signals[i].n == 0) continue;
    loop->signals[i].n--;
    return signals[i].name;
  }
  return NULL;
}

static bool is_awaiting_signals(const kw_loop *loop) {
  for (int i = 0; loop->has_signals && i < KW_SIGNALS; i++) {
    if (uv_is_active((const uv_handle_t *)&loop->signals[i].uv)) return true;
  }
  return false;
}

/* }====== */

/* {====== Being woken ====== */

static void on_async(uv_async_t *async) {
  KW_CONTAINER_OF(async, kw_loop, async)->is_woken = true;
}

static kw_waker *open_waker(kw_loop *loop) {
  kw_waker *waker = kw_waker_new(&loop->async);
  if (waker == NULL) return NULL;
  if (uv_async_init(&loop->uv, &loop->async, on_async) == 0) return waker;
  kw_waker_release(waker);
  return NULL;
}

kw_waker *kw_loop_share_waker(kw_loop *loop) {
  if (loop->waker == NULL) loop->waker = open_waker(loop);
  if (loop->waker != NULL) kw_waker_retain(loop->waker);
  return loop->waker;
}

static bool may_be_woken(const kw_loop *loop) {
  return loop->waker != NULL && kw_waker_is_shared(loop->waker);
}

static void on_rung(uv_async_t *async) {
  KW_CONTAINER_OF(async, kw_loop, rung)->is_rung = true;
}

static int open_bell(kw_loop *loop) {
  loop->bell = kw_waker_new(&loop->rung);
  if (loop->bell == NULL) return UV_ENOMEM;
  int rc = uv_async_init(&loop->uv, &loop->rung, on_rung);
  if (rc < 0) kw_waker_release(loop->bell);
  return rc;
}

static void ring(void *waker) {
  kw_waker_wake(waker);
}

static void retain_bell(void *waker) {
  kw_waker_retain(waker);
}

static void release_bell(void *waker) {
  kw_waker_release(waker);
}

kw_bell kw_loop_bell(kw_loop *loop) {
  kw_waker_retain(loop->bell);
  return (kw_bell){ring, retain_bell, release_bell, loop->bell};
}

static void close_waker(kw_loop *loop) {
  if (loop->waker == NULL) return;
  kw_waker_cut(loop->waker);
  uv_close((uv_handle_t *)&loop->async, NULL);
}

/* }====== */

/* {====== Turning ====== */

/* Ends the iteration, also if it has not begun to wait yet. */
static void on_timer(uv_timer_t *timer) {
  uv_stop(timer->loop);
}

static kw_hosted *hosted_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_hosted, link);
}

static kw_dialed *dialed_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_dialed, link);
}

static void tend_all(kw_loop *loop) {
  loop->tend_at = KW_NEVER;
  for (kw_link *link = loop->hosted.next; link != &loop->hosted; link = link->next) {
    int64_t when = kw_hosted_tend(hosted_at(link), kw_loop_now(loop));
    if (when < loop->tend_at) loop->tend_at = when;
  }
}

/* Who becomes dirty meanwhile has its turn in the next iteration. */
static void flush_all(kw_loop *loop) {
  kw_link dirty;
  kw_link_move(&loop->dirty, &dirty);
  while (!kw_link_is_alone(&dirty)) {
    kw_connection *connection = KW_CONTAINER_OF(dirty.next, kw_connection, dirty);
    kw_link_remove(&connection->dirty);
    kw_connection_flush(connection);
  }
}

static void settle(kw_loop *loop) {
  loop->is_stale = true;
  tend_all(loop);
  if (kw_link_is_alone(&loop->dirty)) return;
  flush_all(loop);
  tend_all(loop); /* again: what was written has made room for more */
}

static bool has_news(const kw_loop *loop) {
  if (loop->is_woken || loop->has_parted || (loop->is_rung && loop->is_awaited)) return true;
  for (int i = 0; i < KW_SIGNALS; i++) {
    if (loop->signals[i].n > 0) return true;
  }
  for (kw_link *link = loop->hosted.next; link != &loop->hosted; link = link->next) {
    const kw_hosted *hosted = hosted_at(link);
    if (kw_hosted_has_work(hosted) || kw_hosted_is_idle(hosted)) return true;
  }
  for (kw_link *link = loop->dialed.next; link != &loop->dialed; link = link->next) {
    if (kw_dialed_has_news(dialed_at(link))) return true;
  }
  return false;
}

static int64_t time_left(kw_loop *loop, int64_t deadline) {
  const kw_due *due = first_due(loop);
  if (has_news(loop) || !kw_link_is_alone(&loop->dirty)) return 0;
  if (loop->tend_at < deadline) deadline = loop->tend_at;
  if (due != NULL && due->node.when < deadline) deadline = due->node.when;
  int64_t now = kw_loop_now(loop);
  return deadline <= now ? 0 : deadline - now;
}

/* libuv would not wait at all if nothing were active: the timer always is. */
static void iterate(kw_loop *loop, int64_t ms) {
  uv_update_time(&loop->uv);
  if (ms > 0) uv_timer_start(&loop->timer, on_timer, (uint64_t)ms, 0);
  uv_run(&loop->uv, ms > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
  uv_timer_stop(&loop->timer);
}

void kw_loop_turn(kw_loop *loop, int64_t ms, bool is_awaited) {
  loop->is_awaited = is_awaited;
  settle(loop);
  int64_t now = kw_loop_now(loop);
  int64_t deadline = ms < 0 || ms > KW_NEVER - now ? KW_NEVER : now + ms;
  do {
    call_due(loop); /* before others are heard, so that those are answered right after */
    int64_t left = time_left(loop, deadline);
    loop->is_stale = true;
    iterate(loop, left);
    settle(loop);
  } while (!has_news(loop) && kw_loop_now(loop) < deadline);
  loop->is_woken = loop->is_rung = loop->has_parted = false;
}

bool kw_loop_is_busy(const kw_loop *loop) {
  for (kw_link *link = loop->hosted.next; link != &loop->hosted; link = link->next) {
    if (kw_hosted_is_busy(hosted_at(link))) return true;
  }
  return false;
}

bool kw_loop_is_awaiting(const kw_loop *loop) {
  if (!kw_link_is_alone(&loop->hosted) || !kw_link_is_alone(&loop->dialed)) return true;
  return is_awaiting_signals(loop) || may_be_woken(loop);
}

/* }====== */

int kw_loop_open(kw_loop **result) {
  kw_loop *loop = kw_alloc_zeroed(sizeof *loop);
  if (loop == NULL) return UV_ENOMEM;
  int rc = uv_loop_init(&loop->uv);
  if (rc < 0) {
    kw_free(loop);
    return rc;
  }
  rc = open_bell(loop);
  if (rc < 0) {
    uv_loop_close(&loop->uv);
    kw_free(loop);
    return rc;
  }
  uv_timer_init(&loop->uv, &loop->timer);
  kw_link_init(&loop->hosted);
  kw_link_init(&loop->dialed);
  kw_link_init(&loop->lingering);
  kw_link_init(&loop->dirty);
  loop->pid = getpid();
  loop->is_stale = true;
  *result = loop;
  return 0;
}

static void close_all(kw_loop *loop, const char *why) {
  while (!kw_link_is_alone(&loop->hosted)) kw_hosted_close(hosted_at(loop->hosted.next), why);
  while (!kw_link_is_alone(&loop->dialed)) kw_dialed_close(dialed_at(loop->dialed.next), why);
  while (!kw_link_is_alone(&loop->lingering)) {
    kw_connection_close(KW_CONTAINER_OF(loop->lingering.next, kw_connection, link), why);
  }
}

void kw_loop_close(kw_loop *loop) {
  close_all(loop, uv_strerror(UV_ECANCELED));
  kw_heap_drop(&loop->dues);
  if (loop->lost < 0) return; /* what libuv has of it is left behind */
  close_waker(loop);
  uv_close((uv_handle_t *)&loop->timer, NULL);
  kw_waker_cut(loop->bell);
  uv_close((uv_handle_t *)&loop->rung, NULL);
  for (int i = 0; loop->has_signals && i < KW_SIGNALS; i++) {
    uv_close((uv_handle_t *)&loop->signals[i].uv, NULL);
  }
  uv_run(&loop->uv, UV_RUN_DEFAULT); /* lets the handles end */
  uv_loop_close(&loop->uv);
  kw_free(loop);
}

/* {====== Forks ====== */

/* Threads that were about to wake the loop are not in this process. */
static void adopt_wakers(kw_loop *loop) {
  if (loop->waker != NULL) kw_waker_adopt(loop->waker);
  kw_waker_adopt(loop->bell);
  loop->async.pending = loop->rung.pending = 0;
  loop->is_woken = loop->is_rung = false;
}

static void drop_signals(kw_loop *loop) {
  static const bool none[KW_SIGNALS] = {false};
  if (loop->has_signals) kw_loop_watch_signals(loop, none);
}

/* What the two processes share must not change before libuv has descriptors of its own. */
int kw_loop_enter(kw_loop *loop) {
  pid_t pid = getpid();
  if (loop->pid == pid) return loop->lost;
  loop->pid = pid;
  loop->is_stale = true;
  adopt_wakers(loop);
  loop->lost = uv_loop_fork(&loop->uv);
  if (loop->lost == 0) drop_signals(loop);
  close_all(loop, "inherited by fork");
  return loop->lost;
}

/* }====== */
