/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "uv/connection.h"

#include "base/mem.h"
#include "uv/address.h"

#define PIECES 64 /* of one write: beyond that the kernel's work for the bytes outweighs the call */
#define WRITES 16 /* of one connection in an iteration: the others have their turn, too */
#define TURN_NS 500000 /* the same for its messages, but for the last of them */

static const kw_engine *engine_of(const kw_connection *connection) {
  return connection->hosted->engine;
}

static kw_loop *loop_of(const kw_connection *connection) {
  return connection->hosted->loop;
}

static bool is_again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* {====== Hooks ====== */

static void on_dirty(void *ctx) {
  kw_connection *connection = ctx;
  if (!kw_link_is_alone(&connection->dirty)) return;
  kw_link_add(&loop_of(connection)->dirty, &connection->dirty);
}

static void on_deadline(void *ctx, int64_t when) {
  kw_connection *connection = ctx;
  kw_loop_set_due(loop_of(connection), &connection->due, when);
}

static int64_t clock_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void begin_turn(kw_loop *loop) {
  loop->turn_until = clock_ns() + TURN_NS;
}

static bool is_late(void *ctx) {
  kw_connection *connection = ctx;
  return clock_ns() >= loop_of(connection)->turn_until;
}

static void on_due(kw_due *due, int64_t now) {
  kw_connection *connection = KW_CONTAINER_OF(due, kw_connection, due);
  if (connection->peer == NULL || connection->is_ending) {
    kw_connection_close(connection);
  } else {
    begin_turn(loop_of(connection));
    engine_of(connection)->step(connection->peer, now);
  }
}

/* }====== */

/* {====== Reading ====== */

static void feed(kw_connection *connection, size_t len) {
  kw_loop *loop = loop_of(connection);
  connection->has_ended = len == 0;
  begin_turn(loop);
  engine_of(connection)->feed(connection->peer, loop->bytes, len, kw_loop_now(loop));
  if (len == 0) on_dirty(connection); /* it is not read any more */
}

static bool wants_bytes(const kw_connection *connection) {
  if (connection->has_ended) return false;
  if (connection->peer == NULL) return true;
  return (engine_of(connection)->state(connection->peer) & KW_PEER_WANTS_BYTES) != 0;
}

/* Once in an iteration: what comes faster than that waits, and others have their turn. */
static void read_some(kw_connection *connection) {
  kw_loop *loop = loop_of(connection);
  ssize_t n = recv(connection->fd, loop->bytes, sizeof loop->bytes, 0);
  if (n < 0 && is_again(errno)) return;
  if (n < 0 || (n == 0 && connection->peer == NULL)) {
    kw_connection_close(connection);
  } else if (connection->peer != NULL) {
    feed(connection, (size_t)n);
  }
}

static void on_ready(uv_poll_t *poll, int status, int events) {
  kw_connection *connection = KW_CONTAINER_OF(poll, kw_connection, poll);
  if (status < 0) {
    kw_connection_close(connection);
    return;
  }
  if (events & UV_WRITABLE) {
    connection->is_full = false;
    on_dirty(connection);
  }
  if (events & UV_READABLE) read_some(connection);
}

/* }====== */

/* {====== Writing ====== */

/* What the socket took, or a negative errno. A peer that has gone must not end the process: no SIGPIPE. */
static ssize_t send_pieces(int fd, struct iovec *pieces, size_t n) {
  struct msghdr message = {.msg_iov = pieces, .msg_iovlen = n};
  ssize_t taken = sendmsg(fd, &message, MSG_NOSIGNAL);
  return taken < 0 ? -errno : taken;
}

static size_t size_of(const struct iovec *pieces, size_t n) {
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += pieces[i].iov_len;
  return size;
}

static void close_in(kw_connection *connection, int64_t ms) {
  kw_loop *loop = loop_of(connection);
  kw_loop_set_due(loop, &connection->due, kw_loop_now(loop) + ms);
}

/* Writes until nothing is pending or the socket is full; false if it has failed. */
static bool write_pending(kw_connection *connection) {
  const kw_engine *engine = engine_of(connection);
  struct iovec pieces[PIECES];
  for (int i = 0; i < WRITES && !connection->is_full; i++) {
    size_t n = engine->pending(connection->peer, pieces, PIECES);
    if (n == 0) return true;
    size_t size = size_of(pieces, n);
    ssize_t taken = send_pieces(connection->fd, pieces, n);
    if (taken < 0 && !is_again((int)-taken)) return false;
    connection->is_full = taken < (ssize_t)size;
    if (taken > 0) engine->wrote(connection->peer, (size_t)taken);
    if (taken > 0 && connection->is_ending) close_in(connection, KW_UNREAD_MS);
  }
  if (!connection->is_full) on_dirty(connection); /* goes on in the next iteration */
  return true;
}

static void poll_for(kw_connection *connection, int interest) {
  if (connection->interest == interest) return;
  connection->interest = (uint8_t)interest;
  if (interest == 0) {
    uv_poll_stop(&connection->poll);
  } else {
    uv_poll_start(&connection->poll, interest, on_ready);
  }
}

static bool is_done(const kw_connection *connection) {
  return (engine_of(connection)->state(connection->peer) & KW_PEER_IS_DONE) != 0;
}

static bool has_pending(const kw_connection *connection) {
  struct iovec piece;
  return engine_of(connection)->pending(connection->peer, &piece, 1) > 0;
}

static void end(kw_connection *connection) {
  if (!connection->is_ending) close_in(connection, KW_UNREAD_MS);
  connection->is_ending = true;
  poll_for(connection, connection->is_full ? UV_WRITABLE : 0);
}

static void linger(kw_connection *connection) {
  engine_of(connection)->close(connection->peer);
  connection->peer = NULL;
  kw_link_remove(&connection->dirty);
  if (connection->has_ended || shutdown(connection->fd, SHUT_WR) < 0) {
    kw_connection_close(connection);
    return;
  }
  close_in(connection, KW_LINGER_MS);
  poll_for(connection, UV_READABLE);
}

void kw_connection_flush(kw_connection *connection) {
  if (connection->peer == NULL) return;
  if (!write_pending(connection)) {
    kw_connection_close(connection);
  } else if (is_done(connection) && has_pending(connection)) {
    end(connection);
  } else if (is_done(connection)) {
    linger(connection);
  } else {
    poll_for(connection,
             (wants_bytes(connection) ? UV_READABLE : 0) | (connection->is_full ? UV_WRITABLE : 0));
  }
}

/* }====== */

static void on_close(uv_handle_t *handle) {
  kw_free(KW_CONTAINER_OF(handle, kw_connection, poll));
}

static kw_connection *new_connection(kw_hosted *hosted, int fd) {
  kw_connection *connection = kw_alloc_zeroed(sizeof *connection);
  if (connection == NULL) return NULL;
  connection->hosted = hosted;
  connection->fd = fd;
  connection->due.on_due = on_due;
  kw_link_init(&connection->dirty);
  if (kw_loop_add_due(hosted->loop, &connection->due) < 0) goto no_due;
  if (uv_poll_init(&hosted->loop->uv, &connection->poll, fd) < 0) goto no_poll;
  kw_link_add(&hosted->connections, &connection->link);
  hosted->loop->connections++;
  return connection;

no_poll:
  kw_loop_remove_due(hosted->loop, &connection->due);
no_due:
  kw_free(connection);
  return NULL;
}

void kw_connection_open(kw_hosted *hosted, int fd) {
  kw_connection *connection = new_connection(hosted, fd);
  if (connection == NULL) {
    close(fd);
    return;
  }
  kw_peer_hooks hooks = {
      .on_dirty = on_dirty, .on_deadline = on_deadline, .is_late = is_late, .ctx = connection};
  kw_address remote;
  if (kw_address_init_remote(&remote, fd) == 0)
    kw_address_print(&remote, hooks.remote, sizeof hooks.remote);
  connection->peer = hosted->engine->accept(hosted->server, &hooks, kw_loop_now(hosted->loop));
  if (connection->peer == NULL) {
    kw_connection_close(connection);
  } else {
    on_dirty(connection); /* the flush begins to read it */
  }
}

void kw_connection_close(kw_connection *connection) {
  kw_loop *loop = loop_of(connection);
  if (connection->peer != NULL) engine_of(connection)->close(connection->peer);
  kw_loop_remove_due(loop, &connection->due);
  kw_link_remove(&connection->dirty);
  kw_link_remove(&connection->link);
  loop->connections--;
  uv_close((uv_handle_t *)&connection->poll, on_close);
  close(connection->fd);
}
