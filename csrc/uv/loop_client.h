/* SPDX-License-Identifier: MIT
 *
 * loop_client: a client of the engine that is attached to a loop, with the connection that it dialed.
 *
 * The loop uses the engine's kw_client as long as it is attached: the caller of kw_loop_client_open keeps the client
 * alive until *owner is NULL. That happens when the connection ends, for whatever reason: the client is notified, and
 * the loop's turn ends. A socket that lingers after that belongs to the loop.
 */
#ifndef KW_UV_LOOP_CLIENT_H
#define KW_UV_LOOP_CLIENT_H

#include "face/engine.h"
#include "uv/address.h"
#include "uv/connection.h"
#include "uv/loop.h"

typedef struct kw_loop_client {
  kw_loop *loop;
  const kw_engine *engine;
  kw_client *client;
  kw_address address;
  struct kw_loop_client **owner; /* *owner is set to NULL at the end */
  kw_link link;                  /* in loop->clients */
  kw_connection *connection;
} kw_loop_client;

/* Dials the address, which is copied, and sets *owner. Does not wait for the connection. `tls_peer` is a kw_tls_peer
 * without an inner peer; NULL: no TLS. Returns 0 or libuv's negative error: then *owner is not set, the kw_tls_peer
 * still belongs to the caller, and the client is unchanged. */
int kw_loop_client_open(kw_loop_client **owner, kw_loop *loop, const kw_engine *engine,
                        kw_client *client, const kw_address *address, kw_tls_peer *tls_peer);

/* Closes the connection at once, which frees the kw_loop_client. `why` goes to the client, see
 * kw_connection_close. */
void kw_loop_client_close(kw_loop_client *loop_client, const char *why);

/* Frees the kw_loop_client. Only its connection calls this, after it has closed the peer. */
void kw_loop_client_free(kw_loop_client *loop_client);

#endif
