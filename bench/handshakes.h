/* SPDX-License-Identifier: MIT
 *
 * handshakes: connections that make a full TLS handshake, and end in order.
 */
#ifndef BENCH_HANDSHAKES_H
#define BENCH_HANDSHAKES_H

#include <stdint.h>

/* Makes n handshakes with a port of an IPv4 address, up to `at_once` of them at a time. A handshake counts when the
 * server has closed the connection after the close_notify of the client, so that the server's work is done, too. Calls
 * `look` now and then, which may end the program. */
void handshakes_make(const char *host, int port, uint64_t n, uint64_t at_once, void (*look)(void));

#endif
