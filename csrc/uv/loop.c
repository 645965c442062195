/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll, pipe2 */
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "uv/loop.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "uv/connection.h"
#include "uv/loop_client.h"
#include "uv/loop_server.h"

/* The longest wait that signals do not end. Shorter waits are cheaper. */
#define PLAIN_WAIT_MS 50

#define WORK_NS 2000000 /* time for handshakes per iteration: about three signatures */

/* {====== Timers ====== */

static kw_timer *first_timer(const kw_loop *loop) {
  kw_heap_node *node = kw_heap_first(&loop->timers);
  return node == NULL ? NULL : KW_CONTAINER_OF(node, kw_timer, node);
}

/* Calls the timers that are due. A timer that sets itself to the current time is called again only in the next
 * iteration. Returns true if a timer was called. */
static bool run_timers(kw_loop *loop) {
  int64_t now = kw_loop_now(loop);
  bool has_run = false;
  for (size_t n = loop->timers.n; n > 0; n--) {
    kw_timer *timer = first_timer(loop);
    if (timer == NULL || timer->node.when > now) return has_run;
    kw_loop_set_timer(loop, timer, KW_NEVER);
    timer->on_timer(timer, now);
    has_run = true;
  }
  return has_run;
}

/* }====== */

/* {====== Waker and bell ====== */

static void on_async(uv_async_t *async) {
  KW_CONTAINER_OF(async, kw_loop, waker_async)->is_woken = true;
}

static kw_waker *open_waker(kw_loop *loop) {
  kw_waker *waker = kw_waker_new(&loop->waker_async);
  if (waker == NULL) return NULL;
  if (uv_async_init(&loop->uv, &loop->waker_async, on_async) == 0) {
    loop->has_changed_events = true;
    return waker;
  }
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
  KW_CONTAINER_OF(async, kw_loop, bell_async)->is_rung = true;
}

static int open_bell(kw_loop *loop) {
  loop->bell = kw_waker_new(&loop->bell_async);
  if (loop->bell == NULL) return UV_ENOMEM;
  int rc = uv_async_init(&loop->uv, &loop->bell_async, on_rung);
  loop->has_changed_events = true;
  if (rc < 0) kw_waker_release(loop->bell);
  return rc;
}

static void close_waker(kw_loop *loop) {
  if (loop->waker == NULL) return;
  kw_waker_cut(loop->waker);
  uv_close((uv_handle_t *)&loop->waker_async, NULL);
}

/* }====== */

/* {====== Turning ====== */

/* Ends the iteration, even if libuv has not begun to wait. */
static void on_wait_over(uv_timer_t *timer) {
  KW_CONTAINER_OF(timer, kw_loop, wait_timer)->is_wait_over = true;
  uv_stop(timer->loop);
}

static kw_loop_server *server_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_loop_server, link);
}

static kw_loop_client *client_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_loop_client, link);
}

static void step_servers(kw_loop *loop) {
  loop->server_deadline = KW_NEVER;
  for (kw_link *link = loop->servers.next; link != &loop->servers; link = link->next) {
    const kw_loop_server *attached = server_at(link);
    int64_t when = attached->engine->step_server(attached->server, kw_loop_now(loop));
    if (when < loop->server_deadline) loop->server_deadline = when;
  }
}

/* Connections that become dirty during the call are flushed in the next iteration. */
static void flush_all(kw_loop *loop) {
  kw_link dirty;
  kw_link_move(&loop->dirty, &dirty);
  while (!kw_link_is_alone(&dirty)) {
    kw_connection *connection = KW_CONTAINER_OF(dirty.next, kw_connection, dirty);
    kw_link_remove(&connection->dirty);
    kw_connection_flush(connection);
  }
}

static void work_for_first(kw_link *list) {
  kw_connection *connection = KW_CONTAINER_OF(list->next, kw_connection, work);
  kw_link_remove(&connection->work);
  kw_connection_work(connection);
}

/* Gives each connection a turn, as if its socket were readable, so that it does not wait for the handshakes of
 * others. */
static void decrypt(kw_loop *loop) {
  kw_link list;
  kw_link_move(&loop->decrypting, &list);
  while (!kw_link_is_alone(&list)) work_for_first(&list);
}

/* Works on handshakes, in the order in which they began to wait, for WORK_NS. The others wait for the next
 * iteration. */
static void work(kw_loop *loop) {
  if (kw_link_is_alone(&loop->working)) return;
  int64_t until = kw_clock_ns() + WORK_NS;
  do {
    work_for_first(&loop->working);
  } while (!kw_link_is_alone(&loop->working) && kw_clock_ns() < until);
}

/* Returns true if a connection was flushed. */
static bool finish_iteration(kw_loop *loop) {
  loop->is_now_stale = true;
  step_servers(loop);
  if (kw_link_is_alone(&loop->dirty)) return false;
  flush_all(loop);
  step_servers(loop); /* writing has freed space */
  return true;
}

static bool has_news(const kw_loop *loop) {
  if (loop->is_woken || loop->has_disconnected || (loop->is_rung && loop->bell_ends_turn))
    return true;
  if (loop->signals.has_arrived) return true;
  for (kw_link *link = loop->servers.next; link != &loop->servers; link = link->next) {
    const kw_loop_server *attached = server_at(link);
    if (attached->engine->has_work(attached->server) || kw_loop_server_is_idle(attached))
      return true;
  }
  for (kw_link *link = loop->clients.next; link != &loop->clients; link = link->next) {
    const kw_loop_client *attached = client_at(link);
    if (attached->engine->has_news(attached->client)) return true;
  }
  return false;
}

/* Returns the earliest deadline of timers and servers, or 0 if there is work to do now. */
static int64_t next_deadline(const kw_loop *loop) {
  const kw_timer *timer = first_timer(loop);
  if (has_news(loop) || !kw_link_is_alone(&loop->dirty)) return 0;
  if (!kw_link_is_alone(&loop->working) || !kw_link_is_alone(&loop->decrypting)) return 0;
  if (timer != NULL && timer->node.when < loop->server_deadline) return timer->node.when;
  return loop->server_deadline;
}

static int64_t time_left(kw_loop *loop, int64_t deadline) {
  int64_t next = next_deadline(loop), now = kw_loop_now(loop);
  if (next < deadline) deadline = next;
  return deadline <= now ? 0 : deadline - now;
}

static const kw_buckets turns = {
    .unit = 1e-3,
    .n = 14,
    .bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}};

/* Called before a wait: counts the time since the last wait. libuv's time is that of the end of its last wait, and is
 * read before a wait anyway, so this costs no system call. */
static void end_turn(kw_loop *loop) {
  uv_update_time(&loop->uv);
  if (loop->woke_at == 0) return;
  uint64_t ms = uv_now(&loop->uv) - loop->woke_at;
  loop->woke_at = 0;
  if (ms > loop->longest_ms) loop->longest_ms = ms;
  kw_histogram_add(&loop->turns, (int64_t)ms);
}

/* libuv does not wait if no handle is active, so the timer is always active. */
static void iterate(kw_loop *loop, int64_t ms) {
  loop->is_wait_over = false;
  end_turn(loop);
  loop->has_changed_events = false;
  if (ms > 0) uv_timer_start(&loop->wait_timer, on_wait_over, (uint64_t)ms, 0);
  uv_run(&loop->uv, ms > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
  uv_timer_stop(&loop->wait_timer);
  loop->woke_at = uv_now(&loop->uv);
}

/* Like `iterate`, but the wait also ends when a signal handler has made the interrupt due. libuv resumes its wait after
 * a handler has run, so this function itself waits for libuv's descriptor. All signals are blocked except during the
 * wait, so none can arrive between the check of the interrupt and the wait. Before the wait libuv must have registered
 * all its sockets with the kernel, which it does in an iteration. */
static void iterate_interruptibly(kw_loop *loop, int64_t ms, kw_interrupt interrupt) {
  struct pollfd backend = {.fd = uv_backend_fd(&loop->uv), .events = POLLIN};
  struct timespec wait = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  sigset_t all, before;
  end_turn(loop);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (!interrupt.is_due(interrupt.ctx)) ppoll(&backend, 1, ms == KW_NEVER ? NULL : &wait, &before);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  iterate(loop, 0);
}

/* is_quiet: nothing happened in the last iteration, and libuv has registered all its sockets with the kernel. Timers
 * run before sockets are read, so that received bytes are answered immediately. */
void kw_loop_turn(kw_loop *loop, int64_t ms, bool bell_ends_turn, kw_interrupt interrupt) {
  bool is_quiet = false;
  loop->bell_ends_turn = bell_ends_turn;
  finish_iteration(loop);
  int64_t now = kw_loop_now(loop);
  int64_t deadline = ms < 0 || ms > KW_NEVER - now ? KW_NEVER : now + ms;
  do {
    if (run_timers(loop)) is_quiet = false;
    int64_t left = time_left(loop, deadline);
    loop->is_now_stale = true;
    if (is_quiet && left > 0) {
      iterate_interruptibly(loop, left, interrupt);
      is_quiet = false;
    } else {
      iterate(loop, left < PLAIN_WAIT_MS ? left : PLAIN_WAIT_MS);
      is_quiet = loop->is_wait_over;
    }
    decrypt(loop);
    work(loop);
    if (finish_iteration(loop)) is_quiet = false;
  } while (!has_news(loop) && kw_loop_now(loop) < deadline && !interrupt.is_due(interrupt.ctx));
  loop->is_woken = loop->is_rung = loop->has_disconnected = loop->signals.has_arrived = false;
}

void kw_loop_flush(kw_loop *loop) {
  finish_iteration(loop);
}

int kw_loop_fd(const kw_loop *loop) {
  return uv_backend_fd(&loop->uv);
}

int64_t kw_loop_timeout(kw_loop *loop) {
  if (loop->has_changed_events) return 0;
  end_turn(loop); /* the host waits */
  loop->is_now_stale = true;
  step_servers(loop);
  return next_deadline(loop) == KW_NEVER ? -1 : time_left(loop, KW_NEVER);
}

bool kw_loop_is_busy(const kw_loop *loop) {
  for (kw_link *link = loop->servers.next; link != &loop->servers; link = link->next) {
    const kw_loop_server *attached = server_at(link);
    if (attached->engine->is_busy(attached->server)) return true;
  }
  return false;
}

bool kw_loop_has_servers(const kw_loop *loop) {
  return !kw_link_is_alone(&loop->servers);
}

bool kw_loop_is_awaiting(const kw_loop *loop) {
  if (kw_loop_has_servers(loop) || !kw_link_is_alone(&loop->clients)) return true;
  return !kw_link_is_alone(&loop->signals.catchers) || may_be_woken(loop);
}

/* }====== */

/* Returns 0 or an error. libuv aborts if there are no descriptors for a pipe when the first loop is made, so this
 * function checks that first. */
static int init_uv(uv_loop_t *uv) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) < 0) return -errno;
  close(fds[0]);
  close(fds[1]);
  return uv_loop_init(uv);
}

int kw_loop_open(kw_loop **result) {
  kw_loop *loop = kw_alloc_zeroed(sizeof *loop);
  if (loop == NULL) return UV_ENOMEM;
  int rc = init_uv(&loop->uv);
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
  uv_timer_init(&loop->uv, &loop->wait_timer);
  kw_link_init(&loop->servers);
  kw_link_init(&loop->clients);
  kw_link_init(&loop->lingering);
  kw_link_init(&loop->dirty);
  kw_link_init(&loop->working);
  kw_link_init(&loop->decrypting);
  kw_signals_init(&loop->signals);
  loop->pid = kw_process_id();
  loop->turns.buckets = &turns;
  loop->is_now_stale = true;
  *result = loop;
  return 0;
}

static void close_all(kw_loop *loop, const char *why) {
  while (!kw_link_is_alone(&loop->servers))
    kw_loop_server_close(server_at(loop->servers.next), why);
  while (!kw_link_is_alone(&loop->clients))
    kw_loop_client_close(client_at(loop->clients.next), why);
  while (!kw_link_is_alone(&loop->lingering)) {
    kw_connection_close(KW_CONTAINER_OF(loop->lingering.next, kw_connection, link), why);
  }
}

void kw_loop_close(kw_loop *loop) {
  close_all(loop, uv_strerror(UV_ECANCELED));
  kw_heap_drop(&loop->timers);
  if (loop->fork_error < 0) return; /* libuv's loop cannot be closed, and leaks */
  close_waker(loop);
  uv_close((uv_handle_t *)&loop->wait_timer, NULL);
  kw_waker_cut(loop->bell);
  uv_close((uv_handle_t *)&loop->bell_async, NULL);
  kw_signals_drop(loop);
  uv_run(&loop->uv, UV_RUN_DEFAULT); /* runs the close callbacks */
  uv_loop_close(&loop->uv);
  kw_free(loop);
}

/* {====== Forks ====== */

/* Forgets calls of wakers that were under way in the parent: their threads do not exist in the child. */
static void adopt_wakers(kw_loop *loop) {
  if (loop->waker != NULL) kw_waker_adopt(loop->waker);
  kw_waker_adopt(loop->bell);
  loop->waker_async.pending = loop->bell_async.pending = 0;
  loop->is_woken = loop->is_rung = false;
}

/* Parent and child share libuv's descriptors until uv_loop_fork has made new ones: nothing may be closed earlier. */
int kw_loop_enter(kw_loop *loop) {
  pid_t pid = kw_process_id();
  if (loop->pid == pid) return loop->fork_error;
  loop->pid = pid;
  loop->is_now_stale = loop->has_changed_events = true;
  adopt_wakers(loop);
  loop->fork_error = uv_loop_fork(&loop->uv);
  kw_signals_abandon(loop);
  close_all(loop, "inherited by fork");
  return loop->fork_error;
}

/* }====== */
