/* SPDX-License-Identifier: MIT
 *
 * signals: the signals of the process that the catchers of a loop catch.
 *
 * A catcher stores the signals that it wants, and those that have arrived. Any number of catchers may want the same
 * signal, and each of them gets it. A signal that arrives again before it was taken counts once, like in the kernel: a
 * flood of signals takes no memory.
 *
 * While a signal is caught by any loop of the process, libuv's handler is installed for it. When the last catcher that
 * wants the signal is closed, the previous handler is installed again; but a handler that the program has installed
 * since then stays. (libuv alone would leave the default effect.)
 *
 * A forked child catches nothing: the previous handlers are installed again inside of fork, since libuv's handler would
 * report the child's signals to the parent.
 */
#ifndef KW_UV_SIGNALS_H
#define KW_UV_SIGNALS_H

#include <uv.h>

#include "base/common.h"
#include "base/link.h"

#define KW_SIGNALS 8 /* number of signals that may be caught: see signals.c */

struct kw_loop;

/* The signals of a loop. */
typedef struct kw_signals {
  uv_signal_t uv[KW_SIGNALS];
  bool is_open;     /* the handles are initialized */
  unsigned caught;  /* a bit for each signal whose handle is started */
  kw_link catchers; /* of kw_catcher */
  bool has_arrived; /* a signal has arrived in this turn */
} kw_signals;

/* Embedded in the object that it belongs to. All zero, it is closed. */
typedef struct kw_catcher {
  kw_link link;
  struct kw_loop *loop; /* NULL: closed */
  unsigned wanted;      /* a bit for each signal that the catcher wants */
  unsigned untaken;     /* a bit for each signal that has arrived and was not taken */
  bool is_inherited;    /* closed, because the process is a child of the one that has opened it */
} kw_catcher;

/* Returns the index of a signal by its name, for example "INT"; or -1 if there is no such signal, or it cannot be
 * caught. */
int kw_signals_find(const char *name);

/* Returns the name of the signal of an index below KW_SIGNALS. */
const char *kw_signals_name(int index);

/* Initializes the signals of a loop, which must be all zero. */
void kw_signals_init(kw_signals *signals);

/* Closes all catchers of a loop. */
void kw_signals_drop(struct kw_loop *loop);

/* Closes all catchers of a loop in a forked child. The effects of all signals stay as they are. */
void kw_signals_abandon(struct kw_loop *loop);

/* Opens a catcher for the signals of the bits `wanted`. Returns 0, or libuv's negative error: then it stays closed. */
int kw_catcher_open(kw_catcher *catcher, struct kw_loop *loop, unsigned wanted);

/* Closes a catcher. Does nothing if it is closed. */
void kw_catcher_close(kw_catcher *catcher);

/* Takes a signal that has arrived, and returns its name; NULL if there is none. */
const char *kw_catcher_take(kw_catcher *catcher);

#endif
