/* SPDX-License-Identifier: MIT
 *
 * peer: one connection of a server: an HTTP/2 session, or an HTTP/1.1 connection if the first bytes are those of one;
 * and the driver that moves its bytes. The functions for the driver are those of kw_peer_face, see face/engine.h.
 */
#ifndef KW_RPC_PEER_H
#define KW_RPC_PEER_H

#include "base/link.h"
#include "rpc/server.h"

/* {====== For the driver ====== */

/* The functions of a kw_peer. */
extern const kw_peer_face kw_accepted_face;

/* Makes the peer of a connection that was accepted. The hooks are copied. Returns NULL if memory is short, or if the
 * server drains. */
kw_peer *kw_peer_open(kw_server *server, const kw_peer_hooks *hooks, int64_t now);

/* Refuses the connection of a peer that has not spoken HTTP, for the reason `why`, which is logged. The peer is
 * done. */
void kw_peer_refuse(kw_peer *peer, const char *why);

/* Notes that the connection uses TLS, and the names of the certificate that the client has shown, see kw_tls.identity;
 * NULL: none. If memory is short, there are none. */
void kw_peer_identify(kw_peer *peer, const char *identity, size_t len);

/* Notes that the client has closed its side, while the peer wants no bytes. */
void kw_peer_note_gone(kw_peer *peer, int64_t now);

/* Returns why the connection of the peer has ended, or is about to; "" if it is still open, or if the peer was
 * detached. */
const char *kw_peer_why(const kw_peer *peer);

/* True if the peer's server is busy, see kw_server_is_busy. */
bool kw_peer_is_busy(const kw_peer *peer);

/* }====== */

/* {====== For the server ====== */

/* Returns the peer of a link in the server's list. */
kw_peer *kw_peer_at(kw_link *link);

/* Drains a peer: it accepts no new streams or requests, and the open ones have `ms` milliseconds to end. Streams whose
 * method has an on_drain may end at once. */
void kw_peer_drain(kw_peer *peer, int64_t ms, int64_t now);

/* Ends the connection of a peer, and removes the peer from the server's list. The peer is done, with its output still
 * pending. The driver still has to close it. */
void kw_peer_detach(kw_peer *peer);

/* Detaches a peer that holds too much memory, and drops its output. The driver still has to close it. */
void kw_peer_cut(kw_peer *peer);

/* Delivers a message of a stream to its method. */
void kw_peer_deliver(kw_stream *stream, kw_slice message);

/* Returns the memory that a peer holds, in bytes. The peer must not be detached. */
size_t kw_peer_held(const kw_peer *peer);

/* }====== */

#endif
