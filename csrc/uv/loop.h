/* SPDX-License-Identifier: MIT
 *
 * loop: libuv's loop, turned from outside. It never calls Lua: a turn lasts until there is something for Lua.
 *
 *   one iteration   wait for sockets, a signal, another thread or the next deadline -> feed peers
 *                   -> who is due -> tend every server -> flush every connection that is dirty, once
 *
 * So whatever happens in an iteration, and whatever Lua did between two turns, leaves with one write to each
 * connection.
 *
 * It may be used on in a child of its process, but what was on it is the parent's, see kw_loop_enter.
 */
#ifndef KW_UV_LOOP_H
#define KW_UV_LOOP_H

#include <uv.h>

#include "base/common.h"
#include "base/heap.h"
#include "base/link.h"
#include "face/engine.h"
#include "uv/waker.h"

#define KW_NEVER INT64_MAX
#define KW_SIGNALS 3 /* SIGHUP, SIGINT, SIGTERM */
#define KW_READ_BYTES 65536

/* Something that is called at a time. It lies inside its owner. */
typedef struct kw_due {
  kw_heap_node node; /* at KW_NEVER it only waits to be given a time */
  void (*on_due)(struct kw_due *due, int64_t now);
} kw_due;

typedef struct kw_signal {
  uv_signal_t uv;
  unsigned n; /* that came and were not taken */
} kw_signal;

typedef struct kw_loop {
  uv_loop_t uv;
  uv_timer_t timer;

  int64_t now;        /* milliseconds of CLOCK_MONOTONIC */
  bool is_stale;      /* the loop may have waited since */
  int64_t turn_until; /* nanoseconds of it: how long the connection that has its turn is heard */

  kw_heap dues;
  int64_t tend_at; /* when a server is next wanted */

  pid_t pid; /* of the process that has entered it last */
  int lost;  /* the error that keeps this process from using it, or 0 */

  kw_link hosted;     /* of kw_hosted */
  kw_link dialed;     /* of kw_dialed */
  kw_link lingering;  /* of kw_connection: those that were dialed */
  kw_link dirty;      /* of kw_connection */
  size_t connections; /* that are not closed */
  bool has_parted;    /* a client has lost its connection, in this turn */

  kw_signal signals[KW_SIGNALS];
  bool has_signals; /* they are initialized */

  kw_waker *waker; /* NULL until somebody has asked for it */
  uv_async_t async;
  bool is_woken;   /* in this turn */
  kw_waker *bell;  /* the waker of `rung` */
  uv_async_t rung; /* an iteration is wanted */
  bool is_rung;    /* in this turn */
  bool is_awaited; /* the bell, in this turn */

  char bytes[KW_READ_BYTES]; /* what was just read: peers keep nothing of it */
} kw_loop;

/* Zero, or libuv's negative error. */
int kw_loop_open(kw_loop **loop);

/* Closes whatever is on it, too. */
void kw_loop_close(kw_loop *loop);

/* Comes before everything else that is done with the loop, or with what is on it. In a child of the process that has
 * entered it last, whatever is on it is closed, in a way that leaves the sockets of the parent alone: nothing is
 * written, and no path removed. Signals are no more caught. Zero, or an error: then the loop can only be closed. */
int kw_loop_enter(kw_loop *loop);

/* Turns at least once, and until a server has work for Lua or nothing on the loop any more, a client has news or has
 * lost its connection, a signal has come, the loop is woken, its bell was rung and that `is_awaited`, or `ms`
 * milliseconds are over; negative: as long as it takes. */
void kw_loop_turn(kw_loop *loop, int64_t ms, bool is_awaited);

/* Whether a server on it is in the middle of a call of Lua: then only a finalizer could turn the loop, and must not. */
bool kw_loop_is_busy(const kw_loop *loop);

/* What makes it iterate; with a reference. */
kw_bell kw_loop_bell(kw_loop *loop);

/* Whether anything but time could end a turn: a server, a client or a signal is waited for, or another thread may wake
 * it. */
bool kw_loop_is_awaiting(const kw_loop *loop);

/* What ends a turn from another thread: this one, or the next one if none goes on. The caller has a reference. NULL if
 * memory is short. */
kw_waker *kw_loop_share_waker(kw_loop *loop);

/* Milliseconds of CLOCK_MONOTONIC, the same all through an iteration. */
int64_t kw_loop_now(kw_loop *loop);

/* Who is called at a time, from now on until it is removed. Zero, or UV_ENOMEM. */
int kw_loop_add_due(kw_loop *loop, kw_due *due);
void kw_loop_remove_due(kw_loop *loop, kw_due *due);

/* It is called at this time, and at no other. */
static inline void kw_loop_set_due(kw_loop *loop, kw_due *due, int64_t when) {
  kw_heap_move(&loop->dues, &due->node, when);
}

/* The place of a signal by its name, or -1. */
int kw_loop_find_signal(const char *name);
const char *kw_loop_signal_name(int i);

/* Takes over the signals with a true entry, and leaves the others as they were before. Zero, or an error. */
int kw_loop_watch_signals(kw_loop *loop, const bool wanted[KW_SIGNALS]);

/* The name of a signal that came, and was not returned yet; or NULL. */
const char *kw_loop_next_signal(kw_loop *loop);

#endif
