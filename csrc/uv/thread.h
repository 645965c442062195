/* SPDX-License-Identifier: MIT
 *
 * thread: an operating system thread with a separate Lua state, and its communication with its owner, the thread that
 * started it.
 *
 *   starting   the Lua state is made, and require(module).main() is called
 *   ready      main has passed a text to the owner
 *   ended      main has returned or failed, and the Lua state is closed
 *
 * C calls Lua nowhere else. No Lua value passes from one state to the other: texts are copied. The thread blocks all
 * signals, so that they are delivered to the host's threads. A thread does not survive a fork: in the child only
 * kw_thread_is_here may be called.
 */
#ifndef KW_UV_THREAD_H
#define KW_UV_THREAD_H

#include <uv.h>

#include "base/common.h"
#include "base/slice.h"
#include "uv/waker.h"

#define KW_THREAD_AT_ONCE -1.0 /* for kw_thread_stop: end without letting calls finish */

typedef enum kw_thread_state {
  KW_THREAD_STARTING,
  KW_THREAD_READY,
  KW_THREAD_ENDED
} kw_thread_state;

typedef struct kw_thread_plan {
  kw_slice module;   /* require(module).main() is called */
  kw_slice path;     /* package.path of the Lua state */
  kw_slice cpath;    /* package.cpath of the Lua state */
  kw_slice argument; /* a text for main */
} kw_thread_plan;

typedef struct kw_thread kw_thread;

/* Starts a bare thread without a Lua state, which blocks all signals and calls body(ctx). The caller joins or
 * detaches *id. Returns 0 or libuv's negative error. */
int kw_thread_start(uv_thread_t *id, void (*body)(void *ctx), void *ctx);

/* {====== For the owner ====== */

/* Starts a thread; the plan is copied. The caller ends it with kw_thread_close or kw_thread_abandon. Returns 0 or
 * libuv's negative error. */
int kw_thread_open(kw_thread **thread, const kw_thread_plan *plan);

/* True if the thread was started in this process, and not in the parent of a fork. */
bool kw_thread_is_here(const kw_thread *thread);

/* Waits until the thread is ready or has ended, for `ms` milliseconds at most. Returns its state. */
kw_thread_state kw_thread_wait(kw_thread *thread, int64_t ms);

/* Returns the text that main passed to kw_thread_set_ready; its data is NULL before that. Valid until the thread is
 * closed. */
kw_slice kw_thread_ready_text(kw_thread *thread);

/* Asks the thread to end: gracefully within `grace` seconds, or KW_THREAD_AT_ONCE. Does not wait. A later request
 * replaces an earlier one. */
void kw_thread_stop(kw_thread *thread, double grace);

/* Asks the thread for another answer, which wakes it. Returns the number of the question, from 1 on. */
uint64_t kw_thread_ask(kw_thread *thread);

/* Waits until the thread has answered a question, or a later one, or has ended, for `ms` milliseconds at most. Returns
 * true if there is such an answer; *len is then its length, and its bytes are copied to `to` if they are at most
 * `room`. */
bool kw_thread_wait_answer(kw_thread *thread, uint64_t question, int64_t ms, char *to, size_t room,
                           size_t *len);

/* Waits until the thread has ended, without a timeout; the caller then calls kw_thread_close. Returns true if main has
 * returned. If main has failed, returns false, and *why is the text of its error, valid until the thread is closed, or
 * empty if memory was short. */
bool kw_thread_join(kw_thread *thread, kw_slice *why);

/* Asks the thread to end at once, waits until it has, and frees it. */
void kw_thread_close(kw_thread *thread);

/* Asks the thread to end at once, without waiting. The thread frees itself: the caller must no longer use it. */
void kw_thread_abandon(kw_thread *thread);

/* Sets the waker to wake when the thread answers or ends, and releases the one that was set before. Takes over the
 * caller's reference. If the thread has already answered or ended, the waker is not used: look for that afterwards. */
void kw_thread_set_owner_waker(kw_thread *thread, kw_waker *waker);

/* }====== */

/* {====== For the thread itself ====== */

/* Returns the kw_thread that runs the caller; NULL in any other thread. */
kw_thread *kw_thread_current(void);

/* Returns the argument of the plan. Valid until the thread has ended. */
kw_slice kw_thread_argument(const kw_thread *thread);

/* Sets the waker to wake when the owner asks the thread for an answer, or to end, and releases the one that was set
 * before. Takes over the caller's reference. If the request has already come, the waker is not used: call
 * kw_thread_question and kw_thread_stop_requested afterwards. */
void kw_thread_set_own_waker(kw_thread *thread, kw_waker *waker);

/* Becomes ready, with a text for the owner. May be called once. Returns 0 or UV_ENOMEM. */
int kw_thread_set_ready(kw_thread *thread, kw_slice text);

/* Returns the number of the last question of the owner, or 0. */
uint64_t kw_thread_question(kw_thread *thread);

/* Answers all questions up to a number. Returns 0 or UV_ENOMEM. */
int kw_thread_answer(kw_thread *thread, uint64_t question, kw_slice answer);

/* True if the owner has asked the thread to end. Then *grace is the argument of the last kw_thread_stop. */
bool kw_thread_stop_requested(kw_thread *thread, double *grace);

/* }====== */

#endif
