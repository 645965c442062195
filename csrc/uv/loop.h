/* SPDX-License-Identifier: MIT
 *
 * loop: an event loop on libuv, turned by Lua.
 *
 * The loop never calls Lua. A turn lasts until there is something for Lua to do, and consists of iterations:
 *
 *   run the timers that are due -> wait for sockets, signals, other threads or the next deadline, and feed the peers
 *     -> decrypt waiting ciphertext, one turn for each connection -> work on TLS handshakes, for a bounded time
 *     -> step every server -> flush every dirty connection, once -> step every server again: writing has made room
 *
 * A turn begins with the last line of this list. So the output of everything that happens in one iteration, and of
 * everything that Lua does between two turns, is sent with one write to each connection. (The turn of a connection is
 * something else: the time for which its messages are handled in one iteration, see connection.h.)
 *
 * After fork the child may use the loop, but everything attached to it belongs to the parent: see kw_loop_enter.
 */
#ifndef KW_UV_LOOP_H
#define KW_UV_LOOP_H

#include <uv.h>

#include "base/common.h"
#include "base/heap.h"
#include "base/histogram.h"
#include "base/link.h"
#include "face/engine.h"
#include "uv/signals.h"
#include "uv/waker.h"

#define KW_NEVER INT64_MAX
#define KW_READ_BYTES 65536
#define KW_TEXT_BYTES 16384 /* plaintext of the largest TLS record */

/* A function that the loop calls at a time. Embedded in the object that it belongs to. */
typedef struct kw_timer {
  kw_heap_node node; /* its time in ms of CLOCK_MONOTONIC; KW_NEVER while none is set */
  void (*on_timer)(struct kw_timer *timer, int64_t now);
} kw_timer;

/* A condition that ends a turn, which the loop checks in each iteration, without a system call. A signal handler of the
 * program may change it, in the thread of the loop. */
typedef struct kw_interrupt {
  bool (*is_due)(void *ctx);
  void *ctx;
} kw_interrupt;

typedef struct kw_loop {
  uv_loop_t uv;
  uv_timer_t wait_timer; /* ends the wait of an iteration */
  bool
      has_changed_events; /* events of libuv handles have changed; the next iteration registers them */
  bool is_wait_over;      /* wait_timer has ended the last wait */

  uint64_t woke_at;    /* when the last wait has ended, in milliseconds of libuv; 0: unknown */
  uint64_t longest_ms; /* between two waits */
  kw_histogram turns;  /* the times between two waits, in milliseconds */

  int64_t now;        /* milliseconds of CLOCK_MONOTONIC */
  bool is_now_stale;  /* the loop may have waited since `now` was read */
  int64_t turn_until; /* end of the turn of the connection that is being fed; in nanoseconds */

  kw_heap timers;          /* of kw_timer */
  int64_t server_deadline; /* when a server must be stepped next */

  pid_t pid;      /* process that has last entered the loop */
  int fork_error; /* libuv error after a fork: the loop can only be closed; or 0 */

  kw_link servers;       /* of kw_loop_server */
  kw_link clients;       /* of kw_loop_client */
  kw_link lingering;     /* of kw_connection: dialed connections that linger, see connection.h */
  kw_link dirty;         /* of kw_connection: the next flush has to look at them */
  kw_link working;       /* of kw_connection: TLS handshakes that can continue, see tls_peer.h */
  kw_link decrypting;    /* of kw_connection: their ciphertext waits for their next turn */
  size_t connections;    /* number of connections that are not closed */
  bool has_disconnected; /* a client has lost its connection in this turn */

  kw_signals signals;

  kw_waker *waker; /* ends the turn; NULL until kw_loop_share_waker */
  uv_async_t waker_async;
  bool is_woken; /* in this turn, by the waker */

  kw_waker *bell; /* causes an iteration; see kw_waker_bell */
  uv_async_t bell_async;
  bool is_rung;        /* in this turn */
  bool bell_ends_turn; /* argument of the current kw_loop_turn */

  char read_buffer[KW_READ_BYTES]; /* bytes just read from a socket; peers copy what they keep */
  char text_buffer[KW_TEXT_BYTES]; /* plaintext of one record */
} kw_loop;

/* Makes a loop. Returns 0 or libuv's negative error. */
int kw_loop_open(kw_loop **loop);

/* Closes everything attached to the loop, and frees the loop; after an error of kw_loop_enter its memory leaks. Wakers
 * and bells with other references stay valid, but do nothing. */
void kw_loop_close(kw_loop *loop);

/* Must be called before any other use of the loop, or of anything attached to it. After fork, in the child, it closes
 * everything that is attached to the loop without disturbing the parent: nothing is written, no socket file is
 * removed, and signals are no longer caught. Returns 0, or an error: then the loop can only be closed. */
int kw_loop_enter(kw_loop *loop);

/* Turns the loop: one iteration, and more of them until
 *   - a server has work for Lua, or has neither listeners nor connections;
 *   - a client has news, or has lost its connection;
 *   - a signal has arrived that a catcher wants;
 *   - the waker was woken, or the bell was rung and `bell_ends_turn` is set;
 *   - the interrupt is due;
 *   - `ms` milliseconds have passed; negative: no timeout.
 *
 * The interrupt is checked after each iteration. An iteration waits for at most 50 ms, which takes one system call. If
 * nothing has happened in this time, the next iteration waits longer, and a signal handler of the program that makes
 * the interrupt due ends its wait at once, provided that the kernel runs the handler in this thread. (The kernel
 * prefers the first thread of the process, where the main program usually is.) So a turn that begins while the
 * interrupt is due lasts at most 50 ms. */
void kw_loop_turn(kw_loop *loop, int64_t ms, bool bell_ends_turn, kw_interrupt interrupt);

/* Steps every server and flushes every dirty connection, but reads no socket: no system call if there is nothing to
 * write. */
void kw_loop_flush(kw_loop *loop);

/* Returns a descriptor that becomes readable when a socket, a signal or another thread has something for the loop. It
 * stays the same until the process forks. The caller, another event loop, must not read from the descriptor; when it is
 * readable, the caller turns this loop. */
int kw_loop_fd(const kw_loop *loop);

/* Returns for how many milliseconds the caller may wait for the descriptor before it turns the loop; negative: without
 * limit; 0 while the next iteration has to register changed handles with the kernel. Steps the servers: Lua may have
 * changed their stores since the last turn. */
int64_t kw_loop_timeout(kw_loop *loop);

/* True if the store of an attached server is in the middle of a call from Lua. Then the caller is a finalizer, and
 * must not turn the loop. */
bool kw_loop_is_busy(const kw_loop *loop);

/* True if something other than time could end a turn: a server or a client is attached, a signal is caught, or the
 * waker has other references than the loop's. */
bool kw_loop_is_awaiting(const kw_loop *loop);

/* True if a server is attached. */
bool kw_loop_has_servers(const kw_loop *loop);

/* Makes libuv poll a descriptor for `events`, and call on_ready. With 0, libuv stops polling it. */
void kw_loop_watch_events(kw_loop *loop, uv_poll_t *poll, int events, uv_poll_cb on_ready);

/* Returns the waker of the loop, with a reference for the caller. Waking it ends the current turn; between two turns,
 * the next one. NULL if memory is short. */
kw_waker *kw_loop_share_waker(kw_loop *loop);

/* Returns milliseconds of CLOCK_MONOTONIC. The clock is read at most once for each part of an iteration. */
int64_t kw_loop_now(kw_loop *loop);

/* {====== Timers ====== */

/* Adds a timer, without a time. Its on_timer must be set. Returns 0 or UV_ENOMEM. */
int kw_loop_add_timer(kw_loop *loop, kw_timer *timer);

/* Removes a timer, so that its memory may be freed. */
void kw_loop_remove_timer(kw_loop *loop, kw_timer *timer);

/* Sets the time of a timer, in milliseconds of CLOCK_MONOTONIC, instead of the one that was set before. on_timer is
 * called once at this time, or soon after; with KW_NEVER not at all. */
void kw_loop_set_timer(kw_loop *loop, kw_timer *timer, int64_t when);

/* }====== */

#endif
