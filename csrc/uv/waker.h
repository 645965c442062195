/* SPDX-License-Identifier: MIT
 *
 * waker: wakes a loop from any thread, and so ends its turn.
 *
 * The loop has a reference to its waker, and each other user has one. A waker may outlive its loop; waking then does
 * nothing.
 *
 * After fork the child's copy of the mutex may stay locked forever. So in the child kw_waker_retain, _release and
 * _wake do nothing until the loop has adopted the waker. The loop does so before it calls any other function of the
 * waker.
 */
#ifndef KW_UV_WAKER_H
#define KW_UV_WAKER_H

#include <uv.h>

#include "base/bell.h"
#include "base/common.h"

typedef struct kw_waker kw_waker;

/* Makes a waker that sends `async`. The one reference is for the loop of `async`. NULL if memory is short. */
kw_waker *kw_waker_new(uv_async_t *async);

/* Takes one more reference. Any thread may call this function. */
void kw_waker_retain(kw_waker *waker);

/* Drops a reference; without references the waker is freed. NULL is allowed. Any thread may call this function. */
void kw_waker_release(kw_waker *waker);

/* Wakes the loop. NULL is allowed. Any thread may call this function. */
void kw_waker_wake(kw_waker *waker);

/* Detaches the waker from its loop, which is being closed: `async` is not used after this returns. Releases the loop's
 * reference. */
void kw_waker_cut(kw_waker *waker);

/* In a forked child: makes the waker usable again. References of threads that do not exist here are never
 * released. */
void kw_waker_adopt(kw_waker *waker);

/* Returns a bell that wakes the loop, with a reference for the caller. */
kw_bell kw_waker_bell(kw_waker *waker);

/* True if there are references other than the loop's. */
bool kw_waker_is_shared(kw_waker *waker);

#endif
