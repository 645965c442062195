/* SPDX-License-Identifier: MIT
 *
 * thread: a thread with a Lua state of its own, and the line between it and its owner, who has started it.
 *
 *   starting   the state is made, and the main of a module is called
 *   ready      main has told its owner a text
 *   ended      main has returned, or failed, and the state is closed
 *
 * The state begins here, so this is the one place where C calls Lua. Nothing of a state crosses the line: texts are
 * copied. The thread blocks all signals, so that they stay with the host. It does not survive a fork: in a child
 * kw_thread_is_here is all that may be asked.
 */
#ifndef KW_UV_THREAD_H
#define KW_UV_THREAD_H

#include <uv.h>

#include "base/common.h"
#include "base/slice.h"
#include "uv/waker.h"

#define KW_THREAD_AT_ONCE -1.0 /* a grace */

typedef enum kw_thread_state {
  KW_THREAD_STARTING,
  KW_THREAD_READY,
  KW_THREAD_ENDED
} kw_thread_state;

typedef struct kw_thread_plan {
  kw_slice module; /* require(module).main() is called */
  kw_slice path;   /* package.path and... */
  kw_slice cpath;  /* package.cpath of the state */
  kw_slice text;   /* for main */
} kw_thread_plan;

typedef struct kw_thread kw_thread;

/* A thread of any kind, which blocks all signals. Zero, or libuv's negative error. */
int kw_thread_start(uv_thread_t *id, void (*body)(void *ctx), void *ctx);

/* {====== For the owner ====== */

/* Starts it. Zero, or libuv's negative error. */
int kw_thread_open(kw_thread **thread, const kw_thread_plan *plan);

/* Whether it was started in this process. */
bool kw_thread_is_here(const kw_thread *thread);

/* Waits until it starts no longer, `ms` milliseconds at most. */
kw_thread_state kw_thread_wait(kw_thread *thread, int64_t ms);

/* What it told when it became ready; empty before. It stays until the thread is closed. */
kw_slice kw_thread_told(kw_thread *thread);

/* Asks it to end, with `grace` seconds to do so in order. The last one who asks is heard. */
void kw_thread_stop(kw_thread *thread, double grace);

/* Waits until it has ended. Returns whether it did so well; if not, `why` stays until it is
 * closed, and is empty if memory was short. */
bool kw_thread_join(kw_thread *thread, kw_slice *why);

/* Asks it to end at once, if it has not ended, and waits for that. */
void kw_thread_close(kw_thread *thread);

/* The same without waiting: it ends when it comes to it. */
void kw_thread_abandon(kw_thread *thread);

/* Whom to wake when it ends. Takes over a reference. */
void kw_thread_set_outer(kw_thread *thread, kw_waker *waker);

/* }====== */

/* {====== For the thread itself ====== */

/* The one that runs this code, or NULL if it is none of ours. */
kw_thread *kw_thread_current(void);

kw_slice kw_thread_text(const kw_thread *thread);

/* Whom to wake when the owner asks for the end. Takes over a reference. */
void kw_thread_set_inner(kw_thread *thread, kw_waker *waker);

/* It is ready. Zero, or UV_ENOMEM. Once only. */
int kw_thread_tell(kw_thread *thread, kw_slice text);

/* Whether it has been asked to end, and with which grace. */
bool kw_thread_is_asked(kw_thread *thread, double *grace);

/* }====== */

#endif
