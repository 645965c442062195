/* SPDX-License-Identifier: MIT
 *
 * hosts: decides under which host names a server answers HTTP requests.
 *
 * The owner of a web page can make the name of its host resolve to 127.0.0.1 (DNS rebinding): then a server there has
 * the same origin as the page, and the browser lets the page use the server. So a request over the loopback interface
 * must name a loopback host, or one that was listed. If any host was listed, the list applies to every connection
 * without TLS. A request without a host is served: browsers send none.
 */
#ifndef KW_RPC_HOSTS_H
#define KW_RPC_HOSTS_H

#include "rpc/service.h"

/* Lists a host: a name in lower case, or * for every host. Returns false if memory is short. */
bool kw_hosts_add(kw_server *server, kw_slice name);

/* True if the server of a peer answers requests for this authority, a host with an optional port. */
bool kw_hosts_allow(const kw_peer *peer, kw_slice authority);

/* Frees the list. */
void kw_hosts_free(kw_server *server);

#endif
