/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "uv/connection.h"

#include "base/clock.h"
#include "base/mem.h"
#include "uv/address.h"
#include "uv/loop_client.h"

#define PIECES 64      /* limit in one write; with more, the system call is not the main cost */
#define WRITES 16      /* limit per iteration for one connection, so that others get their turn */
#define TURN_NS 500000 /* time for the messages of one connection in an iteration */

static bool is_again(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* {====== Hooks ====== */

static void on_dirty(void *ctx) {
  kw_connection *connection = ctx;
  if (!kw_link_is_alone(&connection->dirty)) return;
  kw_link_add(&connection->loop->dirty, &connection->dirty);
}

static void on_deadline(void *ctx, int64_t when) {
  kw_connection *connection = ctx;
  kw_loop_set_timer(connection->loop, &connection->timer, when);
}

static void begin_turn(kw_loop *loop) {
  loop->turn_until = kw_clock_ns() + TURN_NS;
}

static bool is_turn_over(void *ctx) {
  kw_connection *connection = ctx;
  return kw_clock_ns() >= connection->loop->turn_until;
}

/* }====== */

/* {====== Reading ====== */

static void feed(kw_connection *connection, size_t len) {
  kw_loop *loop = connection->loop;
  connection->got_eof = len == 0;
  begin_turn(loop);
  connection->face->feed(connection->peer, loop->read_buffer, len, kw_loop_now(loop));
  /* The flush stops reading. With TLS it also notices work, an alert that has to be written, or the end of the
   * channel. */
  if (len == 0 || connection->tls_peer != NULL) on_dirty(connection);
}

static bool wants_bytes(const kw_connection *connection) {
  if (connection->got_eof) return false;
  if (connection->peer == NULL) return true;
  return (connection->face->state(connection->peer) & KW_PEER_WANTS_BYTES) != 0;
}

/* Returns the error of the socket, which libuv does not pass as its status; or the status, if there is none. */
static int error_of(const kw_connection *connection, int status) {
  int error = 0;
  socklen_t len = sizeof error;
  if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) error = errno;
  return error == 0 ? status : uv_translate_sys_error(error);
}

/* Tells the engine that the client may send and receive. */
static void open_client(kw_connection *connection) {
  kw_loop_client *loop_client = connection->loop_client;
  const kw_tls_peer *tls_peer = connection->tls_peer;
  bool has_h2 = tls_peer != NULL && tls_peer->tls->has_h2(tls_peer->channel);
  loop_client->engine->opened(loop_client->client, has_h2, kw_loop_now(connection->loop));
}

/* Called when the handshake of a connection has succeeded. */
static void on_handshake(kw_connection *connection) {
  kw_tls_peer *tls_peer = connection->tls_peer;
  if (connection->loop_client != NULL) {
    open_client(connection);
  } else {
    size_t len;
    const char *identity = tls_peer->tls->identity(tls_peer->channel, &len);
    connection->engine->identify(tls_peer->inner, identity, len);
  }
}

static bool has_work(const kw_connection *connection) {
  return connection->tls_peer != NULL && kw_tls_peer_has_work(connection->tls_peer);
}

void kw_connection_work(kw_connection *connection) {
  begin_turn(connection->loop);
  if (kw_tls_peer_work(connection->tls_peer)) on_handshake(connection);
  on_dirty(connection);
}

/* Feeds the bytes that the other side sent before it closed: a GOAWAY or an alert may contain the reason. */
static void read_rest(kw_connection *connection) {
  ssize_t n = 1;
  while (n > 0 && wants_bytes(connection)) {
    n = recv(connection->fd, connection->loop->read_buffer, sizeof connection->loop->read_buffer,
             0);
    if (n > 0) feed(connection, (size_t)n);
    while (has_work(connection)) kw_connection_work(connection);
  }
}

static void fail(kw_connection *connection, int rc) {
  if (connection->loop_client != NULL) read_rest(connection);
  kw_connection_close(connection, uv_strerror(rc));
}

/* Reads once, so that others get their turn. Asks the peer each time: a timer and the socket may both cause a read in
 * one iteration, and after the first the peer may have to wait. */
static void read_some(kw_connection *connection) {
  kw_loop *loop = connection->loop;
  if (!wants_bytes(connection)) return;
  ssize_t n = recv(connection->fd, loop->read_buffer, sizeof loop->read_buffer, 0);
  if (n < 0 && is_again(errno)) return;
  if (n < 0) {
    kw_connection_close(connection, uv_strerror(uv_translate_sys_error(errno)));
  } else if (connection->peer != NULL) {
    feed(connection, (size_t)n);
  } else if (n == 0) {
    kw_connection_close(connection, NULL);
  }
}

/* Reads before the step: bytes may have arrived in time, while the program did not turn the loop. */
static void on_timer(kw_timer *timer, int64_t now) {
  kw_connection *connection = KW_CONTAINER_OF(timer, kw_connection, timer);
  if (connection->peer == NULL || connection->is_ending) {
    kw_connection_close(connection, uv_strerror(UV_ETIMEDOUT));
    return;
  }
  if (!connection->is_connecting) read_some(connection);
  if (connection->peer == NULL) return;
  begin_turn(connection->loop);
  connection->face->step(connection->peer, now);
}

/* Called when the socket is connected. With TLS, the handshake comes first. */
static void begin(kw_connection *connection) {
  connection->is_connecting = false;
  if (connection->tls_peer == NULL) open_client(connection);
  on_dirty(connection); /* the flush begins to read */
}

/* True if the socket is connected to itself. If no process listens on the dialed port, the kernel may choose this same
 * port as the local one. */
static bool is_its_own_remote(const kw_connection *connection) {
  kw_address local, remote;
  if (kw_address_init_socket(&local, connection->fd) < 0) return false;
  if (kw_address_init_remote(&remote, connection->fd) < 0) return false;
  return local.len == remote.len && memcmp(&local.any, &remote.any, local.len) == 0;
}

static void on_connected(kw_connection *connection, int status) {
  int rc = error_of(connection, status);
  if (rc == 0 && is_its_own_remote(connection)) rc = UV_ECONNREFUSED;
  if (rc < 0) {
    kw_connection_close(connection, uv_strerror(rc));
  } else {
    begin(connection);
  }
}

static void note_gone(kw_connection *connection) {
  const kw_tls_peer *tls_peer = connection->tls_peer;
  if (connection->peer == NULL) return;
  connection->is_gone = true;
  connection->engine->gone(tls_peer == NULL ? connection->peer : tls_peer->inner,
                           kw_loop_now(connection->loop));
  on_dirty(connection); /* the flush stops watching */
}

static void on_ready(uv_poll_t *poll, int status, int events) {
  kw_connection *connection = KW_CONTAINER_OF(poll, kw_connection, poll);
  if (connection->is_connecting) {
    on_connected(connection, status);
    return;
  }
  if (status < 0) {
    fail(connection, error_of(connection, status));
    return;
  }
  if (events & UV_WRITABLE) {
    connection->is_socket_full = false;
    on_dirty(connection);
  }
  if (events & UV_READABLE) read_some(connection);
  if (events & UV_DISCONNECT) note_gone(connection);
}

/* }====== */

/* {====== Writing ====== */

/* Returns how many bytes the socket took, or a negative errno. Does not cause SIGPIPE, which would end the process. */
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
  kw_loop *loop = connection->loop;
  kw_loop_set_timer(loop, &connection->timer, kw_loop_now(loop) + ms);
}

/* Writes until nothing is pending or the socket is full. Returns 0 or an error. */
static int write_pending(kw_connection *connection) {
  const kw_peer_face *face = connection->face;
  struct iovec pieces[PIECES];
  for (int i = 0; i < WRITES && !connection->is_socket_full; i++) {
    size_t n = face->pending(connection->peer, pieces, PIECES);
    if (n == 0) return 0;
    size_t size = size_of(pieces, n);
    ssize_t taken = send_pieces(connection->fd, pieces, n);
    if (taken < 0 && !is_again((int)-taken)) return uv_translate_sys_error((int)-taken);
    connection->is_socket_full = taken < (ssize_t)size;
    if (taken > 0) face->wrote(connection->peer, (size_t)taken);
    if (taken > 0 && connection->is_ending) close_in(connection, KW_WRITE_TIMEOUT_MS);
  }
  if (!connection->is_socket_full) on_dirty(connection); /* continues in the next iteration */
  return 0;
}

static void poll_for(kw_connection *connection, int interest) {
  if (connection->interest == interest) return;
  connection->interest = (uint8_t)interest;
  kw_loop_watch_events(connection->loop, &connection->poll, interest, on_ready);
}

static bool is_done(const kw_connection *connection) {
  return (connection->face->state(connection->peer) & KW_PEER_IS_DONE) != 0;
}

static bool has_pending(const kw_connection *connection) {
  struct iovec piece;
  return connection->face->pending(connection->peer, &piece, 1) > 0;
}

static void end(kw_connection *connection) {
  if (!connection->is_ending) close_in(connection, KW_WRITE_TIMEOUT_MS);
  connection->is_ending = true;
  poll_for(connection, connection->is_socket_full ? UV_WRITABLE : 0);
}

/* Makes the server log why a handshake failed. */
static void report_refusal(const kw_connection *connection) {
  const kw_tls_peer *tls_peer = connection->tls_peer;
  const char *why = tls_peer == NULL ? NULL : kw_tls_peer_refusal(tls_peer);
  if (why == NULL || connection->loop_client != NULL) return;
  connection->engine->refuse(tls_peer->inner, why);
}

/* Closes the peer. A dialed connection also leaves its kw_loop_client. */
static void detach_peer(kw_connection *connection, const char *why) {
  report_refusal(connection);
  if (connection->peer != NULL) connection->face->close(connection->peer, why);
  connection->peer = NULL;
  connection->tls_peer = NULL;
  kw_link_remove(&connection->dirty);
  kw_link_remove(&connection->work);
  if (connection->loop_client == NULL) return;
  kw_link_add(&connection->loop->lingering, &connection->link);
  kw_loop_client_free(connection->loop_client);
  connection->loop_client = NULL;
}

static void linger(kw_connection *connection) {
  detach_peer(connection, NULL);
  if (connection->got_eof || shutdown(connection->fd, SHUT_WR) < 0) {
    kw_connection_close(connection, NULL);
    return;
  }
  close_in(connection, KW_LINGER_MS);
  poll_for(connection, UV_READABLE);
}

/* Adds a TLS connection that waits for its handshake to the loop's work. */
static void find_work(kw_connection *connection) {
  kw_loop *loop = connection->loop;
  if (!has_work(connection) || !kw_link_is_alone(&connection->work)) return;
  kw_link_add(connection->tls_peer->is_open ? &loop->decrypting : &loop->working,
              &connection->work);
}

static int read_interest(const kw_connection *connection) {
  bool is_watched = connection->loop_client == NULL && !connection->got_eof && !connection->is_gone;
  if (wants_bytes(connection)) return UV_READABLE;
  return is_watched ? UV_DISCONNECT : 0;
}

static void flush_open(kw_connection *connection) {
  int rc = write_pending(connection);
  if (rc < 0) {
    fail(connection, rc);
  } else if (is_done(connection) && has_pending(connection)) {
    end(connection);
  } else if (is_done(connection)) {
    linger(connection);
  } else {
    poll_for(connection,
             read_interest(connection) | (connection->is_socket_full ? UV_WRITABLE : 0));
    find_work(connection);
  }
}

void kw_connection_flush(kw_connection *connection) {
  if (connection->peer == NULL) return;
  if (!connection->is_connecting) {
    flush_open(connection);
  } else if (is_done(connection)) {
    kw_connection_close(connection, NULL);
  } else {
    poll_for(connection, UV_WRITABLE);
  }
}

/* }====== */

static void on_close(uv_handle_t *handle) {
  kw_free(KW_CONTAINER_OF(handle, kw_connection, poll));
}

static int new_connection(kw_connection **result, kw_loop *loop, const kw_engine *engine, int fd) {
  kw_connection *connection = kw_alloc_zeroed(sizeof *connection);
  if (connection == NULL) return UV_ENOMEM;
  connection->loop = loop;
  connection->engine = engine;
  connection->fd = fd;
  connection->timer.on_timer = on_timer;
  kw_link_init(&connection->link);
  kw_link_init(&connection->dirty);
  kw_link_init(&connection->work);
  int rc = kw_loop_add_timer(loop, &connection->timer);
  if (rc < 0) goto no_timer;
  rc = uv_poll_init(&loop->uv, &connection->poll, fd);
  if (rc < 0) goto no_poll;
  loop->connections++;
  *result = connection;
  return 0;

no_poll:
  kw_loop_remove_timer(loop, &connection->timer);
no_timer:
  kw_free(connection);
  return rc;
}

static kw_peer_hooks hooks_of(kw_connection *connection) {
  return (kw_peer_hooks){.on_dirty = on_dirty, .on_deadline = on_deadline, .ctx = connection};
}

/* Makes a kw_tls_peer for an accepted socket. Returns NULL if memory is short. */
static kw_tls_peer *accept_tls(kw_loop_server *loop_server, const kw_tls *tls,
                               kw_tls_context *context) {
  kw_tls_failure failure;
  kw_tls_channel *channel = tls->accept(context, &failure);
  if (channel == NULL) return NULL;
  kw_tls_peer *tls_peer =
      kw_tls_peer_new(loop_server->loop, tls, channel, loop_server->engine->accepted);
  if (tls_peer == NULL) tls->close(channel);
  return tls_peer;
}

/* Opens a peer of the server. Returns NULL if memory is short, or if the server refuses the connection. */
static void *accept_peer(kw_connection *connection, kw_loop_server *loop_server) {
  kw_peer_hooks hooks = hooks_of(connection);
  hooks.is_turn_over = is_turn_over;
  kw_address remote;
  if (kw_address_init_remote(&remote, connection->fd) == 0)
    kw_address_print(&remote, hooks.remote, sizeof hooks.remote);
  return loop_server->engine->accept(loop_server->server, &hooks, kw_loop_now(loop_server->loop));
}

/* Sets the peer: one of the engine, behind a kw_tls_peer if there is one. */
static void set_peer(kw_connection *connection, const kw_peer_face *face, void *peer,
                     kw_tls_peer *tls_peer) {
  connection->face = tls_peer == NULL ? face : &kw_tls_peer_face;
  connection->peer = tls_peer == NULL ? peer : tls_peer;
  connection->tls_peer = tls_peer;
  if (tls_peer != NULL) tls_peer->inner = peer;
}

void kw_connection_accept(kw_loop_server *loop_server, int fd, const kw_tls *tls,
                          kw_tls_context *context) {
  const kw_engine *engine = loop_server->engine;
  kw_connection *connection;
  kw_tls_peer *tls_peer = context == NULL ? NULL : accept_tls(loop_server, tls, context);
  if (context != NULL && tls_peer == NULL) goto no_tls;
  if (new_connection(&connection, loop_server->loop, engine, fd) < 0) goto no_connection;
  kw_link_add(&loop_server->connections, &connection->link);
  void *peer = accept_peer(connection, loop_server);
  if (peer == NULL) goto no_peer;
  set_peer(connection, engine->accepted, peer, tls_peer);
  on_dirty(connection); /* the flush begins to read */
  return;

no_peer:
  if (tls_peer != NULL) kw_tls_peer_free(tls_peer);
  kw_connection_close(connection, NULL);
  return;
no_connection:
  if (tls_peer != NULL) kw_tls_peer_free(tls_peer);
no_tls:
  close(fd);
}

int kw_connection_dial(kw_loop_client *loop_client, int fd, bool is_connecting,
                       kw_tls_peer *tls_peer) {
  const kw_engine *engine = loop_client->engine;
  kw_connection *connection;
  int rc = new_connection(&connection, loop_client->loop, engine, fd);
  if (rc < 0) return rc;
  connection->loop_client = loop_client;
  set_peer(connection, engine->dialed, loop_client->client, tls_peer);
  connection->is_connecting = is_connecting;
  loop_client->connection = connection;
  kw_peer_hooks hooks = hooks_of(connection);
  kw_address_print(&loop_client->address, hooks.remote, sizeof hooks.remote);
  engine->dial(loop_client->client, &hooks, kw_loop_now(loop_client->loop));
  if (is_connecting) {
    on_dirty(connection); /* the flush begins to wait for the connection */
  } else {
    begin(connection);
  }
  return 0;
}

void kw_connection_close(kw_connection *connection, const char *why) {
  kw_loop *loop = connection->loop;
  detach_peer(connection, why);
  kw_loop_remove_timer(loop, &connection->timer);
  kw_link_remove(&connection->link);
  loop->connections--;
  loop->has_changed_events = true;
  uv_close((uv_handle_t *)&connection->poll, on_close);
  close(connection->fd);
}
