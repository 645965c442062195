/* SPDX-License-Identifier: MIT
 *
 * signals: the signals of the process that the catchers of a loop catch.
 *
 * A catcher stores the signals that it wants, and those that have arrived. Any number of catchers may want the same
 * signal, and each of them gets it. A signal that comes again before it was taken counts once, as signals do in the
 * kernel: a flood of signals takes no memory.
 *
 * While a signal is caught by any loop of the process, libuv's handler is installed for it. When the last catcher that
 * wants the signal is closed, the handler that was there before is installed again; but a handler that the program has
 * installed since then stays. (libuv by itself would leave the default effect.)
 *
 * A forked child catches nothing: the handlers that were there before are installed again inside of fork, since libuv's
 * handler would report the child's signals to the parent.
 */
#ifndef KW_UV_SIGNALS_H
#define KW_UV_SIGNALS_H

#include <uv.h>

#include "base/common.h"
#include "base/link.h"

#define KW_SIGNALS 8 /* that may be caught: see signals.c */

struct kw_loop;

/* The part of a loop. All zero, it has no catcher. */
typedef struct kw_signals {
  uv_signal_t uv[KW_SIGNALS];
  bool is_open;     /* the handles are initialized */
  unsigned caught;  /* a bit for each signal whose handle is started */
  kw_link catchers; /* of kw_catcher */
  bool has_come;    /* a signal has arrived in this turn */
} kw_signals;

/* Embedded in the object that it belongs to. All zero, it is closed. */
typedef struct kw_catcher {
  kw_link link;
  struct kw_loop *loop; /* NULL: closed */
  unsigned wanted;      /* a bit for each signal that the catcher wants */
  unsigned came;        /* a bit for each signal that came and was not taken */
  bool is_inherited;    /* closed, because the process is a child of the one that has opened it */
} kw_catcher;

/* Returns the index of a signal by its name, such as "INT"; or -1 if there is no such signal, or it cannot be
 * caught. */
int kw_signals_find(const char *name);

/* Returns the name of the signal of an index below KW_SIGNALS. */
const char *kw_signals_name(int index);

/* Initializes the part of a loop. */
void kw_signals_init(kw_signals *signals);

/* Closes all catchers of a loop. */
void kw_signals_drop(struct kw_loop *loop);

/* Closes all catchers of a loop in a forked child. The effects of all signals stay as they are. */
void kw_signals_abandon(struct kw_loop *loop);

/* Opens a catcher for the signals of the bits `wanted`. Returns 0, or libuv's negative error: then it stays closed. */
int kw_catcher_open(kw_catcher *catcher, struct kw_loop *loop, unsigned wanted);

/* Closes a catcher. Does nothing if it is closed. */
void kw_catcher_close(kw_catcher *catcher);

/* Takes a signal that came, and returns its name; NULL if there is none. */
const char *kw_catcher_take(kw_catcher *catcher);

#endif
