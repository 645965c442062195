/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "uv/loop_client.h"

#include "base/mem.h"

/* Returns a socket that is connected or connecting, or a negative error. */
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

static int start(kw_loop_client *loop_client, kw_tls_peer *tls_peer) {
  bool is_connecting;
  int fd = connect_to(&loop_client->address, &is_connecting);
  if (fd < 0) return fd;
  int rc = kw_connection_dial(loop_client, fd, is_connecting, tls_peer);
  if (rc < 0) close(fd);
  return rc;
}

int kw_loop_client_open(kw_loop_client **owner, kw_loop *loop, const kw_engine *engine,
                        kw_client *client, const kw_address *address, kw_tls_peer *tls_peer) {
  kw_loop_client *loop_client = kw_alloc(sizeof *loop_client);
  if (loop_client == NULL) return UV_ENOMEM;
  *loop_client = (kw_loop_client){
      .loop = loop, .engine = engine, .client = client, .address = *address, .owner = owner};
  int rc = start(loop_client, tls_peer);
  if (rc < 0) {
    kw_free(loop_client);
    return rc;
  }
  kw_link_add(&loop->clients, &loop_client->link);
  *owner = loop_client;
  return 0;
}

void kw_loop_client_close(kw_loop_client *loop_client, const char *why) {
  kw_connection_close(loop_client->connection, why);
}

void kw_loop_client_free(kw_loop_client *loop_client) {
  loop_client->loop->has_disconnected = true;
  kw_link_remove(&loop_client->link);
  *loop_client->owner = NULL;
  kw_free(loop_client);
}
