/* SPDX-License-Identifier: MIT
 *
 * tls: TLS for the load generator, by OpenSSL over nonblocking sockets.
 *
 * The server's certificate is not verified: what a client does costs the server nothing. Each connection makes a full
 * handshake, because no session is ever offered for resumption. A violation of the protocol ends the program.
 */
#ifndef BENCH_TLS_H
#define BENCH_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct ssl_st tls;

/* What a call may wait for. */
typedef enum tls_wait { TLS_WAITS_FOR_NOTHING, TLS_WAITS_FOR_READ, TLS_WAITS_FOR_WRITE } tls_wait;

/* Begins TLS on a socket, which the caller owns. */
tls *tls_open(int fd);
void tls_close(tls *t);

/* Goes on with the handshake. TLS_WAITS_FOR_NOTHING: the handshake is over, and the protocol is h2. */
tls_wait tls_shake(tls *t);

/* As read and write: -1 with *wait set if the socket is not ready. tls_read returns 0 at the end of the connection. */
ssize_t tls_read(tls *t, void *to, size_t cap, tls_wait *wait);
ssize_t tls_write(tls *t, const void *bytes, size_t len, tls_wait *wait);

/* Sends close_notify. */
void tls_finish(tls *t);

#endif
