/* SPDX-License-Identifier: MIT
 *
 * tls_peer: a peer of the engine behind a TLS channel. It implements kw_peer_face, too, for ciphertext.
 *
 *   socket <- ciphertext -> channel <- plaintext -> inner peer
 *
 * Handshakes are slow: a signature takes a large part of a millisecond. So until the end of the handshake `feed` only
 * queues bytes, and the loop calls kw_tls_peer_work when there is time for it. The timers of the inner peer limit the
 * handshake as they limit the silence of a plain connection.
 *
 * After the handshake `feed` decrypts at once. When the inner peer takes no more bytes, or the turn of the connection
 * is over, the rest stays in the channel as ciphertext, at most one read of the socket, and kw_tls_peer_work continues
 * with it. The plaintext of the inner peer is encrypted when it can be sent: at most KW_TLS_OUTPUT bytes and one record
 * wait for the socket.
 */
#ifndef KW_UV_TLS_PEER_H
#define KW_UV_TLS_PEER_H

#include "face/engine.h"
#include "face/tls.h"
#include "uv/loop.h"

typedef struct kw_tls_peer {
  const kw_tls *tls;
  kw_tls_channel *channel;
  const kw_peer_face *face; /* of the inner peer */
  void *inner;
  kw_loop *loop;
  bool is_open;   /* the handshake has succeeded */
  bool got_bytes; /* ciphertext was received */
  bool got_end;   /* the inner peer has received the end of the stream */
} kw_tls_peer;

/* The functions for a kw_tls_peer. `close` frees it, with its channel. */
extern const kw_peer_face kw_tls_peer_face;

/* Makes a kw_tls_peer, and takes over the channel. Returns NULL if memory is short: then the channel still belongs to
 * the caller. The caller sets `inner`. */
kw_tls_peer *kw_tls_peer_new(kw_loop *loop, const kw_tls *tls, kw_tls_channel *channel,
                             const kw_peer_face *face);

/* Frees a kw_tls_peer whose inner peer was not set. */
void kw_tls_peer_free(kw_tls_peer *peer);

/* True if kw_tls_peer_work has something to do. */
bool kw_tls_peer_has_work(const kw_tls_peer *peer);

/* Continues the handshake, or the pending ciphertext. Returns true if the handshake has succeeded in this call. */
bool kw_tls_peer_work(kw_tls_peer *peer);

/* Returns why the handshake failed, for the log; NULL if it has not, or if the other side has closed the connection
 * without sending any byte. */
const char *kw_tls_peer_refusal(const kw_tls_peer *peer);

#endif
