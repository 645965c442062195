/* SPDX-License-Identifier: MIT
 *
 * listener: a socket that connections are accepted from, for one server.
 *
 * Where the process or the machine has no more descriptors or memory, those who want to connect wait in the kernel's
 * queue, and the listener tries again a little later.
 */
#ifndef KW_UV_LISTENER_H
#define KW_UV_LISTENER_H

#include "uv/address.h"
#include "uv/hosted.h"

typedef struct kw_listener {
  uv_poll_t poll;
  kw_due due; /* when it tries again */
  kw_hosted *hosted;
  kw_link link;               /* in the list of the hosted server */
  struct kw_listener **owner; /* is set to NULL when it closes */

  int fd;
  bool has_path; /* it made the file at its path, ... */
  pid_t pid;     /* ... in this process ... */
  dev_t device;
  ino_t inode; /* ... which is this one */
} kw_listener;

/* Zero, or libuv's negative error. A path that a dead process has left behind is taken over. */
int kw_listener_open(kw_listener **owner, kw_hosted *hosted, const kw_address *address);

/* Accepts no more; connections stay. Its path is removed, if it is still its own, and of this process. */
void kw_listener_close(kw_listener *listener);

#endif
