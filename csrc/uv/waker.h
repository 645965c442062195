/* SPDX-License-Identifier: MIT
 *
 * waker: ends a turn of a loop, from any thread.
 *
 * The loop has a reference to it, and so has everybody who may wake it. It may outlive the loop, and then wakes nobody.
 *
 * In a child of the process that it was made in it is a picture, in which somebody may hold the mutex for ever: nothing
 * happens there, until the loop adopts it.
 */
#ifndef KW_UV_WAKER_H
#define KW_UV_WAKER_H

#include <uv.h>

#include "base/common.h"

typedef struct kw_waker kw_waker;

/* With one reference, of the loop that `async` is on; NULL if memory is short. */
kw_waker *kw_waker_new(uv_async_t *async);

void kw_waker_retain(kw_waker *waker);

/* NULL is fine. */
void kw_waker_release(kw_waker *waker);

/* NULL is fine, too. */
void kw_waker_wake(kw_waker *waker);

/* The loop closes: `async` is not used any more when this returns. Releases the loop's reference. */
void kw_waker_cut(kw_waker *waker);

/* In a child of the process: it wakes the loop there from now on. The references of those who are not there stay. */
void kw_waker_adopt(kw_waker *waker);

/* Whether anybody but the loop has it. */
bool kw_waker_is_shared(kw_waker *waker);

#endif
