/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "uv/listener.h"

#include "base/mem.h"
#include "base/process.h"
#include "uv/connection.h"

#define BACKLOG 4096 /* the kernel has its own limit */
#define ACCEPTS 64   /* in an iteration, so that connections get their turn */
#define RETRY_MS 100 /* after a lack of descriptors or memory */

/* {====== Accepting ====== */

static void on_ready(uv_poll_t *poll, int status, int events);

/* Reports a lack of resources to the server, pauses, and retries later. */
static void pause_listener(kw_listener *listener, int error) {
  kw_loop_server *loop_server = listener->loop_server;
  kw_loop *loop = loop_server->loop;
  loop_server->engine->accept_failed(loop_server->server, uv_strerror(error));
  kw_loop_watch_events(loop, &listener->poll, 0, on_ready);
  kw_loop_set_timer(loop, &listener->timer, kw_loop_now(loop) + RETRY_MS);
}

static void on_timer(kw_timer *timer, int64_t now) {
  kw_listener *listener = KW_CONTAINER_OF(timer, kw_listener, timer);
  (void)now;
  kw_loop_watch_events(listener->loop_server->loop, &listener->poll, UV_READABLE, on_ready);
}

static bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

static bool is_nothing(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

/* Any other error of accept4 concerns one connection, which ended before it was accepted. */
static void on_ready(uv_poll_t *poll, int status, int events) {
  kw_listener *listener = KW_CONTAINER_OF(poll, kw_listener, poll);
  (void)events;
  if (status < 0) {
    pause_listener(listener, status);
    return;
  }
  for (int i = 0; i < ACCEPTS; i++) {
    int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      kw_connection_accept(listener->loop_server, fd, listener->tls, listener->context);
    } else if (is_shortage(errno)) {
      pause_listener(listener, -errno);
      return;
    } else if (is_nothing(errno)) {
      return;
    }
  }
}

/* }====== */

/* {====== Binding ====== */

static int set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

static bool is_any(const struct in6_addr *host) {
  return IN6_IS_ADDR_UNSPECIFIED(host);
}

/* Accepted sockets inherit the options. "::" listens on every address, IPv4 included. */
static int set_options(int fd, const kw_address *address) {
  if (kw_address_is_path(address)) return 0;
  int rc = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (rc == 0) rc = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (rc == 0 && address->any.sa_family == AF_INET6) {
    rc = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, !is_any(&address->ip6.sin6_addr));
  }
  return rc;
}

static int bind_to(int fd, const kw_address *address) {
  return bind(fd, &address->any, address->len) < 0 ? -errno : 0;
}

/* True if the path is a socket on which no process listens. */
static bool is_left_behind(const kw_address *address) {
  struct stat file;
  if (lstat(address->path.sun_path, &file) < 0 || !S_ISSOCK(file.st_mode)) return false;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool is_refused = connect(fd, &address->any, address->len) < 0 && errno == ECONNREFUSED;
  close(fd);
  return is_refused;
}

static int bind_path(int fd, const kw_address *address) {
  int rc = bind_to(fd, address);
  if (rc != UV_EADDRINUSE || !is_left_behind(address)) return rc;
  if (unlink(address->path.sun_path) < 0 && errno != ENOENT) return -errno;
  return bind_to(fd, address);
}

static void note_path(kw_listener *listener, const kw_address *address) {
  struct stat file;
  if (lstat(address->path.sun_path, &file) < 0) return;
  listener->has_path = true;
  listener->pid = kw_process_id();
  listener->device = file.st_dev;
  listener->inode = file.st_ino;
}

static void remove_path(const kw_listener *listener) {
  kw_address address;
  struct stat file;
  if (!kw_process_is(listener->pid)) return;
  if (kw_address_init_socket(&address, listener->fd) < 0) return;
  if (lstat(address.path.sun_path, &file) < 0) return;
  if (file.st_dev != listener->device || file.st_ino != listener->inode) return;
  unlink(address.path.sun_path);
}

static int bind_listener(kw_listener *listener, const kw_address *address) {
  int rc = set_options(listener->fd, address);
  if (rc < 0) return rc;
  if (!kw_address_is_path(address)) return bind_to(listener->fd, address);
  rc = bind_path(listener->fd, address);
  if (rc == 0) note_path(listener, address);
  return rc;
}

/* }====== */

static void on_close(uv_handle_t *handle) {
  kw_free(KW_CONTAINER_OF(handle, kw_listener, poll));
}

static int start(kw_listener *listener, const kw_address *address) {
  kw_loop *loop = listener->loop_server->loop;
  int rc = bind_listener(listener, address);
  if (rc < 0) return rc;
  if (listen(listener->fd, BACKLOG) < 0) return -errno;
  rc = uv_poll_init(&loop->uv, &listener->poll, listener->fd);
  if (rc < 0) return rc;
  kw_loop_watch_events(loop, &listener->poll, UV_READABLE, on_ready);
  return 0;
}

int kw_listener_open(kw_listener **owner, kw_loop_server *loop_server, const kw_address *address,
                     const kw_tls *tls, kw_tls_context *context) {
  kw_listener *listener = kw_alloc_zeroed(sizeof *listener);
  if (listener == NULL) return UV_ENOMEM;
  listener->loop_server = loop_server;
  listener->owner = owner;
  listener->timer.on_timer = on_timer;
  int rc = kw_loop_add_timer(loop_server->loop, &listener->timer);
  if (rc < 0) goto no_timer;
  listener->fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  rc = -errno;
  if (listener->fd < 0) goto no_socket;
  rc = start(listener, address);
  if (rc < 0) goto no_start;
  listener->tls = tls;
  listener->context = context == NULL ? NULL : tls->retain(context);
  kw_link_add(&loop_server->listeners, &listener->link);
  *owner = listener;
  return 0;

no_start:
  if (listener->has_path) remove_path(listener);
  close(listener->fd);
no_socket:
  kw_loop_remove_timer(loop_server->loop, &listener->timer);
no_timer:
  kw_free(listener);
  return rc;
}

void kw_listener_close(kw_listener *listener) {
  *listener->owner = NULL;
  if (listener->has_path) remove_path(listener);
  kw_loop_remove_timer(listener->loop_server->loop, &listener->timer);
  kw_link_remove(&listener->link);
  if (listener->context != NULL) listener->tls->release(listener->context);
  uv_close((uv_handle_t *)&listener->poll, on_close);
  close(listener->fd);
}
