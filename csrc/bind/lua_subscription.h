/* SPDX-License-Identifier: MIT
 *
 * lua_subscription: a client's watch as a Lua object, beneath the watch object that users see.
 *
 *   core.subscription(tag, key, options) -> sub    next_watch of a client returns `tag`, a number from 1 on, when the
 *                                            watch is ready. The options are those of open_watch
 *   sub:take(used)                           the next notice for the watch: "events" and a list, which may be
 *                                            empty; "progress" or "compacted" and a revision; "failed", a code and
 *                                            the server's text, if any; "closed"; nothing if there is nothing now.
 *                                            Reuses the tables of the list `used`, if given
 *   sub:attach(client, call) -> boolean      asks for the watch on a watch call; false if the call is gone, the watch
 *                                            is not idle, or memory is short
 *   sub:detach()                             leaves its watch call; the state is idle, unless it was failed
 *   sub:arm()                                next_watch returns the watch when something arrives
 *   sub:disarm()                             next_watch does so no longer
 *   sub:follow(flag)                         next_watch returns the watch whenever its progress moves
 *   sub:state() -> state, next, is_lagging, has_room, is_suspect
 *                                            state: "idle", "creating", "open", "failed" or "closed"; next: the
 *                                            revision where it continues; is_lagging: it left a call because
 *                                            its events are not read, and needs a separate call;
 *                                            is_suspect: the server knows less than the watch has seen
 *   sub:seen() -> revision, was_created, server_revision, cluster
 *                                            revision: the highest that a server has sent, before the watch became
 *                                            suspect; server_revision: the
 *                                            server's when it last created the watch; cluster: its id, if known
 *   sub:heard() -> seconds                   when the server last reported that a feeding watch has every event;
 *                                            nothing if it has not yet
 *   sub:begin(revision, cluster, overlaps)   continues after a revision that was seen. Must be called before attach.
 *                                            overlaps: see kw_subscription
 *   sub:accept()                             the watch is no longer suspect: the server is behind, but has the same
 *                                            history
 *   sub:fail(code, text)                     the watch fails with this error
 *   sub:refusal() -> text                    the server's text if it refused the watch, unless it was taken
 *   sub:revive()                             undoes a refusal: the watch is idle
 *   sub:close()                              leaves its watch call and drops what was not taken
 */
#ifndef KW_BIND_LUA_SUBSCRIPTION_H
#define KW_BIND_LUA_SUBSCRIPTION_H

#include "base/common.h"
#include "face/compat.h"
#include "rpc/subscription.h"

/* Returns the subscription at index i; NULL if it is closed. Raises if there is none, or if a finalizer asks while news
 * of it is being pushed. */
kw_subscription *kw_bind_check_subscription(lua_State *L, int i);

/* Pushes the function core.subscription. */
void kw_bind_push_subscription(lua_State *L);

#endif
