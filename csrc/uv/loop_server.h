/* SPDX-License-Identifier: MIT
 *
 * loop_server: a server of the engine that is attached to a loop, with its listeners and its connections.
 *
 * The loop uses the engine's kw_server as long as it is attached: the caller of kw_loop_server_open keeps the server
 * alive until the kw_loop_server is closed.
 */
#ifndef KW_UV_LOOP_SERVER_H
#define KW_UV_LOOP_SERVER_H

#include "face/engine.h"
#include "uv/loop.h"

typedef struct kw_loop_server {
  kw_loop *loop;
  const kw_engine *engine;
  kw_server *server;
  struct kw_loop_server **owner; /* pointer that is set to NULL on close */

  kw_link link;        /* in loop->servers */
  kw_link listeners;   /* of kw_listener */
  kw_link connections; /* of kw_connection */
} kw_loop_server;

/* Attaches a server to the loop, gives the server the loop's bell, and sets *owner. Returns 0 or UV_ENOMEM. */
int kw_loop_server_open(kw_loop_server **owner, kw_loop *loop, const kw_engine *engine,
                        kw_server *server);

/* Closes the listeners and, at once, the connections; then sets *owner to NULL and frees the kw_loop_server. `why`
 * goes to the peers, see kw_connection_close. */
void kw_loop_server_close(kw_loop_server *loop_server, const char *why);

/* Returns the kw_loop_server of this server on this loop, or NULL. */
kw_loop_server *kw_loop_server_find(kw_loop *loop, const kw_server *server);

/* True if there are neither listeners nor connections. */
bool kw_loop_server_is_idle(const kw_loop_server *loop_server);

#endif
