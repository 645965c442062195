/* SPDX-License-Identifier: MIT
 *
 * listener: a listening socket of one server.
 *
 * When the process or the machine runs out of descriptors or memory, the listener stops accepting and retries a moment
 * later. Until then clients wait in the kernel's queue.
 */
#ifndef KW_UV_LISTENER_H
#define KW_UV_LISTENER_H

#include "face/tls.h"
#include "uv/address.h"
#include "uv/loop_server.h"

typedef struct kw_listener {
  uv_poll_t poll;
  kw_timer timer; /* next try after a lack of descriptors */
  kw_loop_server *loop_server;
  kw_link link;               /* in the list of the kw_loop_server */
  struct kw_listener **owner; /* pointer that is set to NULL on close */

  const kw_tls *tls;       /* with `context`, else NULL */
  kw_tls_context *context; /* of connections with TLS; or NULL */

  int fd;
  bool has_path; /* the listener has made a socket file... */
  pid_t pid;     /* ...in this process... */
  dev_t device;  /* ...on this device... */
  ino_t inode;   /* ...with this inode */
} kw_listener;

/* Binds, listens and sets *owner, which must live until the listener is closed: by kw_listener_close, or with its
 * kw_loop_server. With a context, which is retained, its connections speak TLS; else `tls` and `context` are NULL. A
 * socket file on which no process listens is replaced. Returns 0 or libuv's negative error: then *owner is not set. */
int kw_listener_open(kw_listener **owner, kw_loop_server *loop_server, const kw_address *address,
                     const kw_tls *tls, kw_tls_context *context);

/* Stops listening, sets *owner to NULL, and frees the listener. Connections stay. The socket file is removed, if it
 * is the one that the listener has made, and if this is the process that made it. */
void kw_listener_close(kw_listener *listener);

#endif
