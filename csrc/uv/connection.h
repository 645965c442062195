/* SPDX-License-Identifier: MIT
 *
 * connection: a socket, and the engine's peer whose bytes it carries: an accepted peer, or a client that dialed.
 *
 * A connection reads into the buffer of the loop and feeds the peer at once. It writes only in a flush, straight from
 * the memory of the peer. So it needs no buffer: an idle connection takes sizeof(kw_connection) and an entry in the
 * loop's heap of timers, about 300 bytes, in addition to the memory of its peer. The peer of a connection with TLS is
 * a kw_tls_peer, which contains the peer of the engine.
 *
 *   connecting  a dialed socket waits for the other side to accept it, or for the deadline of its peer
 *   open        the peer is fed and written. The socket is read while the peer wants bytes, once in each iteration,
 *               and the messages are handled for a bounded time (a turn). While the socket is full, writing waits.
 *               While an accepted peer wants no bytes, the socket is watched for the end of the other side
 *   ending      the peer is done, but the socket is full and has not taken its last bytes. The connection is closed
 *               when the other side has read nothing for KW_WRITE_TIMEOUT_MS
 *   lingering   everything is written, our side of the socket is shut, and the peer is closed. Bytes that still arrive
 *               are discarded, until the other side closes too or KW_LINGER_MS have passed. If a socket were closed
 *               with unread bytes, the kernel would reset the connection, and the other side could lose what was
 *               written last
 */
#ifndef KW_UV_CONNECTION_H
#define KW_UV_CONNECTION_H

#include "uv/loop_server.h"
#include "uv/tls_peer.h"

#define KW_LINGER_MS 1000
#define KW_WRITE_TIMEOUT_MS 5000

struct kw_loop_client;

typedef struct kw_connection {
  uv_poll_t poll;
  kw_timer timer; /* the peer's deadline; or the timeout of an ending or lingering connection */
  kw_loop *loop;
  const kw_engine *engine;
  const kw_peer_face *face; /* the functions for the peer */
  void *peer;               /* NULL: the connection lingers */
  kw_tls_peer *tls_peer;    /* the peer, if it speaks TLS; or NULL */
  struct kw_loop_client
      *loop_client; /* of a dialed connection, until its peer is closed; or NULL */

  kw_link link;  /* in its kw_loop_server; or in loop->lingering, if it was dialed and lingers */
  kw_link dirty; /* in loop->dirty, if the next flush has to look at the connection */
  kw_link work;  /* in loop->working, if its kw_tls_peer has work */

  int fd;
  uint8_t interest; /* events that are polled for */
  bool is_connecting;
  bool is_socket_full; /* the socket has not taken all bytes of the last write */
  bool got_eof;        /* the other side has closed its end */
  bool is_gone;        /* the same, and bytes before it were not read yet */
  bool is_ending;      /* see above */
} kw_connection;

/* Takes over an accepted socket, which must be non-blocking, and opens a peer of the server for it, with TLS if a
 * context is given (with its functions; else both are NULL). Closes the socket if memory is short, or if the server
 * refuses the connection. */
void kw_connection_accept(kw_loop_server *loop_server, int fd, const kw_tls *tls,
                          kw_tls_context *context);

/* Takes over a socket that was dialed, and is connected or connecting, and a kw_tls_peer without an inner peer; NULL:
 * no TLS. Returns 0 or libuv's negative error: then both still belong to the caller, and the client is unchanged. */
int kw_connection_dial(struct kw_loop_client *loop_client, int fd, bool is_connecting,
                       kw_tls_peer *tls_peer);

/* Closes the socket and the peer at once. `why` goes to the peer, see kw_peer_face. The connection must not be used
 * after this; its memory is freed when libuv has closed its handle. */
void kw_connection_close(kw_connection *connection, const char *why);

/* Does a part of the work of a connection with TLS: a step of the handshake, or bytes that waited. */
void kw_connection_work(kw_connection *connection);

/* Writes what is pending, and then does what the state of the peer asks for: read, wait for the socket, or end. May
 * close the connection. */
void kw_connection_flush(kw_connection *connection);

#endif
