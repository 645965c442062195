/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "uv/dialed.h"

#include "base/mem.h"

/* A socket that is connected, or connecting; or a negative error. */
static int connect_to(const kw_address *address, bool *is_connecting) {
  int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int yes = 1;
  if (fd < 0) return uv_translate_sys_error(errno);
  if (!kw_address_is_path(address)) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  int rc = connect(fd, &address->any, address->len) < 0 ? -errno : 0;
  *is_connecting = rc == -EINPROGRESS || rc == -EINTR;
  if (rc == 0 || *is_connecting) return fd;
  close(fd);
  return uv_translate_sys_error(-rc);
}

static int start(kw_dialed *dialed) {
  bool is_connecting;
  int fd = connect_to(&dialed->address, &is_connecting);
  if (fd < 0) return fd;
  int rc = kw_connection_dial(dialed, fd, is_connecting);
  if (rc < 0) close(fd);
  return rc;
}

int kw_dialed_open(kw_dialed **owner, kw_loop *loop, const kw_engine *engine, kw_client *client,
                   const kw_address *address) {
  kw_dialed *dialed = kw_alloc(sizeof *dialed);
  if (dialed == NULL) return UV_ENOMEM;
  *dialed = (kw_dialed){
      .loop = loop, .engine = engine, .client = client, .address = *address, .owner = owner};
  int rc = start(dialed);
  if (rc < 0) {
    kw_free(dialed);
    return rc;
  }
  kw_link_add(&loop->dialed, &dialed->link);
  *owner = dialed;
  return 0;
}

void kw_dialed_close(kw_dialed *dialed, const char *why) {
  kw_connection_close(dialed->connection, why);
}

void kw_dialed_free(kw_dialed *dialed) {
  dialed->loop->has_parted = true;
  kw_link_remove(&dialed->link);
  *dialed->owner = NULL;
  kw_free(dialed);
}
