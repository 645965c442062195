/* SPDX-License-Identifier: MIT
 *
 * peer: one connection of a server: a session, and the driver that moves its bytes. As in face/engine.h.
 */
#ifndef KW_RPC_PEER_H
#define KW_RPC_PEER_H

#include "base/link.h"
#include "rpc/server.h"

/* `why` of close, for a debug log: the driver's reason; or NULL. */
kw_peer *kw_peer_open(kw_server *server, const kw_peer_hooks *hooks, int64_t now);
void kw_peer_close(kw_peer *peer, const char *why);

void kw_peer_feed(kw_peer *peer, kw_slice bytes, int64_t now);
size_t kw_peer_pending(kw_peer *peer, struct iovec *pieces, size_t max);
void kw_peer_wrote(kw_peer *peer, size_t bytes);
unsigned kw_peer_state(const kw_peer *peer);
void kw_peer_step(kw_peer *peer, int64_t now);

/* Returns why the connection has ended or is about to, see kw_session_why; "" if the server has let go of it. Valid
 * until the next call. */
const char *kw_peer_why(const kw_peer *peer);

/* Whether its server is. */
bool kw_peer_is_busy(const kw_peer *peer);

/* For the server: the peer of a link in its list, and ending one. A peer without a server only writes what it has. */
kw_peer *kw_peer_at(kw_link *link);
void kw_peer_drain(kw_peer *peer, int64_t ms, int64_t now);
void kw_peer_detach(kw_peer *peer);

/* Ends one that holds too much, with all that it has to write. */
void kw_peer_cut(kw_peer *peer);

/* What it holds, in bytes; and when something was last written to it, or a message came. */
size_t kw_peer_held(const kw_peer *peer);
int64_t kw_peer_moved(const kw_peer *peer);

#ifdef KW_PROBE
/* What is not as it must be; or NULL. */
const char *kw_peer_fault(const kw_peer *peer);
#endif

#endif
