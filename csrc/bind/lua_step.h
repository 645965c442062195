/* SPDX-License-Identifier: MIT
 *
 * lua_step: the time of a store, and the work that is due.
 *
 *   store:deadline()      -> when the next work is due, in seconds; nil: never
 *   store:step(now)       does one step of the work that is due at `now`, or at the store's own time without `now`
 *                         -> whether more work is due at that time
 *   store:run_due()       does one step of the work that is due, and submits writes to the commit thread
 *                         -> seconds until the next work is due; and whether there are changes that are not settled.
 *                         The seconds are nil if no work is waiting, if the clock is manual and no work is due, or if
 *                         the store is busy. A closed store returns only false
 *
 *   store:is_busy()       -> whether a long write is under way, or failed ones are being undone. A closed store
 *                         is not busy
 *   store:is_compacting() -> as kw_store_is_compacting; false for a closed store
 *
 * The work is lease expiry, compaction, lagging watchers and progress notifications. With a manual clock, time
 * moves only by `step`; otherwise it is CLOCK_MONOTONIC.
 */
#ifndef KW_BIND_LUA_STEP_H
#define KW_BIND_LUA_STEP_H

#include "bind/lua_store.h"

/* Returns the time of the store, in milliseconds. */
int64_t kw_bind_now(const kw_lua_store *self);

/* Returns the time of the store, rounded up to the next millisecond, so that a lease that is granted from then on
 * does not expire too early. A manual clock is not rounded. */
int64_t kw_bind_now_rounded_up(const kw_lua_store *self);

/* Returns the seconds as milliseconds, rounded. Raises if the number is 9e12 or more, -9e12 or less, or NaN. `what`
 * names the argument or option in the error. */
int64_t kw_bind_to_ms(lua_State *L, const char *what, double seconds);

/* Takes over what the disk has finished, and does one step of the work that is due. Does nothing while the store is
 * busy. Returns when the next work is due; INT64_MIN: at once, KW_NEVER: never. */
int64_t kw_bind_step_if_due(kw_lua_store *self);

#endif
