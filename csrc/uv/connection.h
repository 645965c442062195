/* SPDX-License-Identifier: MIT
 *
 * connection: a socket, and the peer that it drives: one that was accepted, or the client that has dialed it.
 *
 * Bytes are read into the buffer of the loop and fed at once; nothing is written but in a flush, straight from where
 * the peer has its pieces. A connection therefore has no buffer of its own: an idle one takes sizeof(kw_connection) and
 * a place in the loop's heap, about 300 bytes, beside what the peer takes.
 *
 *   connecting  one that was dialed: it waits for the other side, or for the deadline of its peer
 *   open        its peer is fed and written; it is read while the peer wants bytes, and waits for room while the socket
 *               is full. In an iteration it is read once, and heard for a bounded time
 *   ending      the peer is done, but the socket is full: it is closed if for KW_UNREAD_MS the other side reads nothing
 *   lingering   the peer was done and is closed; what still comes is thrown away, until the other side closes too or
 *               KW_LINGER_MS are over. To close with bytes unread would make the kernel reset the connection, and what
 *               was written last could be lost.
 */
#ifndef KW_UV_CONNECTION_H
#define KW_UV_CONNECTION_H

#include "uv/hosted.h"

#define KW_LINGER_MS 1000
#define KW_UNREAD_MS 5000

struct kw_dialed;

typedef struct kw_connection {
  uv_poll_t poll;
  kw_due due; /* the peer's deadline, or the end of the wait for the other side */
  kw_loop *loop;
  const kw_peer_face *face;
  void *peer;               /* NULL: it lingers */
  struct kw_dialed *dialed; /* whom it was dialed for, until its peer is closed; or NULL */

  kw_link link;  /* among those of the hosted server; or, dialed and lingering, of the loop */
  kw_link dirty; /* in the loop's list, if it is dirty */

  int fd;
  uint8_t interest; /* what is polled for */
  bool is_connecting;
  bool is_full;   /* the socket took less than there was */
  bool has_ended; /* the other side writes no more */
  bool is_ending; /* the peer is done, and what it has said last is on its way */
} kw_connection;

/* Takes over a socket that does not block: closes it, if there can be no connection. */
void kw_connection_accept(kw_hosted *hosted, int fd);

/* The same for one that was dialed, and is connected, or on its way. Zero, or an error: then the socket is left alone,
 * and the client was not told of it. */
int kw_connection_dial(struct kw_dialed *dialed, int fd, bool is_connecting);

/* At once; the peer is told why, see kw_peer_face. Frees it later, when libuv has let it go. */
void kw_connection_close(kw_connection *connection, const char *why);

/* Writes what is pending, and does what the state of the peer asks for. */
void kw_connection_flush(kw_connection *connection);

#endif
