/* SPDX-License-Identifier: MIT
 *
 * broadcast: the same bytes for many HTTP answers. Its members are requests (rpc/request.h) whose answers have begun.
 *
 *   join -> member --- no room at a publish ---> lagging --- news of room ---> Lua catches up, and joins again
 *
 * A publish never waits. A member whose output has no room is left out: it is then no longer a member, but lags, and
 * has the number of the first publish that it has missed. The owner of the broadcast chooses the numbers, which grow. A
 * request is a member of at most one broadcast, until its call ends.
 */
#ifndef KW_RPC_BROADCAST_H
#define KW_RPC_BROADCAST_H

#include "base/link.h"
#include "rpc/server.h"

typedef struct kw_broadcast {
  kw_link members;
} kw_broadcast;

/* Makes a broadcast without members. */
static inline void kw_broadcast_init(kw_broadcast *broadcast) {
  kw_link_init(&broadcast->members);
}

/* Removes all members. */
void kw_broadcast_drop(kw_broadcast *broadcast);

/* Makes a request a member; it no longer lags. Returns false if the request has ended, or has sent no answer yet. */
bool kw_broadcast_join(kw_broadcast *broadcast, kw_server *server, uint64_t id);

/* Writes a blob, which is retained if it is long, to the body of each member that has room. `at` is the number of the
 * publish. Returns the number of members that it was written to. */
size_t kw_broadcast_publish(kw_broadcast *broadcast, kw_blob *blob, int64_t at);

/* Moves all members of another broadcast to this one. */
void kw_broadcast_absorb(kw_broadcast *broadcast, kw_broadcast *other);

/* True if a request lags; *at is then the number of the first publish that it has missed. */
bool kw_broadcast_lag(const kw_server *server, uint64_t id, int64_t *at);

/* Removes a request from its broadcast, if it is a member of one; it no longer lags. */
void kw_broadcast_leave(kw_server *server, uint64_t id);

#endif
