/* SPDX-License-Identifier: MIT
 *
 * loop: libuv's loop, turned from outside. It never calls Lua: a turn gathers what happened, and ends.
 */
#ifndef KW_UV_LOOP_H
#define KW_UV_LOOP_H

#include "base/common.h"

typedef struct kw_loop kw_loop;

/* Zero, or libuv's negative error. */
int kw_loop_open(kw_loop **loop);
void kw_loop_close(kw_loop *loop);

/* Waits until something happens, or `ms` milliseconds are over; negative: as long as it takes. */
void kw_loop_turn(kw_loop *loop, int64_t ms);

/* Nanoseconds of a clock that never goes back. */
uint64_t kw_loop_now(void);

#endif
