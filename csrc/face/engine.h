/* SPDX-License-Identifier: MIT
 *
 * engine: the contract between core and a driver.
 *
 * Core speaks the protocol, but does no I/O, reads no clock, never blocks and never calls Lua. A driver (keywatch.uv,
 * or one for luv or nginx) owns the sockets and the clock. Shared objects cannot link against each other. So core
 * publishes this struct of functions in the registry of the Lua state, as a full userdata under KW_ENGINE_KEY; a
 * driver checks its version.
 *
 * A *peer* is one connection: a kw_peer on the server's side, a kw_client on the client's. The driver feeds the bytes
 * that a socket gives it, and writes the bytes that are pending.
 *
 *   a server                                  a client
 *     server_of, set_bell   once                client_of
 *     accept                each socket         dial        before or while the socket connects
 *                                               opened      once the socket is connected
 *   each time that a socket is readable, while KW_PEER_WANTS_BYTES is set
 *     feed                  with the bytes; with none at the end of the stream
 *   each time that a deadline of on_deadline is reached
 *     step
 *   at the end of each iteration of the event loop
 *     step_server           for each server
 *     for each dirty peer
 *       pending, write, wrote    until nothing is pending or the socket is full
 *       state                    KW_PEER_IS_DONE and nothing pending: shut the socket, then close
 *                                else: read the socket if KW_PEER_WANTS_BYTES is set, and only then
 *     step_server           again: writing has made room
 *   at any time, when the socket fails or is no longer wanted
 *     close
 *
 * Rules
 *   - All functions are called on the thread of the Lua state. Only a bell may be rung from another thread.
 *   - Time is milliseconds of CLOCK_MONOTONIC. `now` never goes back.
 *   - Any function of the engine may call hooks of any peer: a put on one connection makes the peers dirty that watch
 *     the key. A hook only records the call and returns. It must not call the engine.
 *   - No function fails halfway. A peer that runs out of memory, or whose other side breaks the protocol, becomes
 *     dirty and done.
 */
#ifndef KW_FACE_ENGINE_H
#define KW_FACE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define KW_ENGINE_KEY "keywatch.engine"
#define KW_ENGINE_VERSION 11
#define KW_SERVER_NAME "keywatch.core.server" /* metatable of server objects, in the registry */
#define KW_CLIENT_NAME "keywatch.core.client" /* metatable of client objects, in the registry */
#define KW_BELL_NAME "keywatch.uv.bell"       /* metatable of userdata that hold a kw_bell */

#define KW_REMOTE_TEXT 64 /* bytes of a peer's address, with the 0 at its end */

typedef struct kw_server kw_server;
typedef struct kw_client kw_client;
typedef struct kw_peer kw_peer;
typedef struct kw_bell kw_bell; /* see base/bell.h */

/* Functions of the driver for one peer. The struct is copied. */
typedef struct kw_peer_hooks {
  /* The peer is dirty: its pending bytes or its state may have changed. */
  void (*on_dirty)(void *ctx);

  /* Sets the peer's deadline, at which `step` must be called. Replaces the previous deadline. INT64_MAX: never. */
  void (*on_deadline)(void *ctx, int64_t when);

  /* Returns true if the peer has used up its turn, so that other peers get theirs. Called after each message. The
   * rest of the bytes then waits inside of the peer for `step`, which is due at once: on_deadline is called. NULL: no
   * limit. Clients do not call it. */
  bool (*is_turn_over)(void *ctx);

  void *ctx;                   /* first argument of the hooks */
  char remote[KW_REMOTE_TEXT]; /* address of the other end, for logs and handlers; or "" */
} kw_peer_hooks;

/* What `state` returns, as bits. */
enum {
  /* The peer may be fed. Without this bit the socket must not be read until the peer is dirty again: this is how
   * backpressure reaches the other side. */
  KW_PEER_WANTS_BYTES = 1,
  /* The peer has ended. The driver closes the socket once nothing is pending. */
  KW_PEER_IS_DONE = 2
};

/* The functions for one peer. `peer` is a kw_peer for accepted connections and a kw_client for dialed ones. */
typedef struct kw_peer_face {
  /* Takes bytes that were read from the socket, and copies what it keeps. len 0: the other side has closed its
   * end. */
  void (*feed)(void *peer, const void *bytes, size_t len, int64_t now);

  /* Returns the number of pending pieces, at most `max`, and puts them into `pieces`. 0: nothing is pending. The pieces
   * are valid until the next `wrote` or `close` of this peer, or the next `step_server`, which may cut off a peer that
   * takes too much memory. A driver that writes later must copy them. */
  size_t (*pending)(void *peer, struct iovec *pieces, size_t max);

  /* The socket has taken the first `bytes` bytes of what is pending. */
  void (*wrote)(void *peer, size_t bytes);

  /* Returns bits of KW_PEER_WANTS_BYTES and KW_PEER_IS_DONE. */
  unsigned (*state)(const void *peer);

  /* Does what the deadline was set for. An early call does no harm. */
  void (*step)(void *peer, int64_t now);

  /* The socket is closed. `why` is the text of the system's error; NULL: there was none. No hook is called for the peer
   * after this. Frees a kw_peer; a kw_client belongs to its Lua object and is not freed. */
  void (*close)(void *peer, const char *why);

  /* Does what `feed` does at the end of the stream, for an end that anybody on the way may have caused: TLS has no
   * close_notify, or the connection was reset. A message whose length is not known is then incomplete. */
  void (*cut)(void *peer, int64_t now);
} kw_peer_face;

typedef struct kw_engine {
  uint32_t version;             /* KW_ENGINE_VERSION; with another one nothing below may be used */
  const kw_peer_face *accepted; /* functions for the kw_peer that `accept` returns */
  const kw_peer_face *dialed;   /* functions for a kw_client */

  /* {====== Servers ====== */

  /* Returns the server of a server object (a userdata of KW_SERVER_NAME), or NULL if the server is closed. The
   * driver keeps the object alive as long as it uses the server. */
  kw_server *(*server_of)(void *object);

  /* Does the work of the server that belongs to no single peer: expires leases, sends events, finishes writes that have
   * become durable. Called in every iteration before and after the dirty peers are flushed, and at the time that it
   * returned last. Returns when it must be called next; INT64_MAX: only with the next iteration. */
  int64_t (*step_server)(kw_server *server, int64_t now);

  /* Gives the server a bell that causes an iteration of the driver's loop. Another thread rings it when writes
   * have become durable. Copies *bell, and takes over the caller's reference. */
  void (*set_bell)(kw_server *server, const kw_bell *bell);

  /* True if Lua has something to do for the server: the loop should return to Lua. */
  bool (*has_work)(const kw_server *server);

  /* True if the server's store is in the middle of a call from Lua. Then the caller is a finalizer, and must not
   * call feed, step or step_server. */
  bool (*is_busy)(const kw_server *server);

  /* Makes a peer for a connection that was accepted. NULL if memory is short, or if the server takes no more
   * connections: then the driver closes the socket. */
  kw_peer *(*accept)(kw_server *server, const kw_peer_hooks *hooks, int64_t now);

  /* Called after each failed attempt of the driver to accept a connection: descriptors or memory are short. The server
   * logs the reason `why`. Connections wait, and the driver tries again. */
  void (*accept_failed)(kw_server *server, const char *why);

  /* The driver refuses the connection of a peer, for the reason `why`, which the server logs: TLS has failed. The
   * peer is done, and has nothing pending. */
  void (*refuse)(kw_peer *peer, const char *why);

  /* Called after the handshake of each connection with TLS. `identity` has the names of the client's verified
   * certificate, see kw_tls.identity in face/tls.h; NULL: there is none. */
  void (*identify)(kw_peer *peer, const char *identity, size_t len);

  /* The client has closed its side, while the peer wants no bytes: those before the end are still to be fed. Called at
   * most once for a peer. */
  void (*gone)(kw_peer *peer, int64_t now);

  /* }====== */

  /* {====== Clients ====== */

  /* Returns the client of a client object (a userdata of KW_CLIENT_NAME). Returns NULL if the client is closed, or on
   * the second call for a client, since a client has only one connection. The driver keeps the object alive as long as
   * it uses the client. */
  kw_client *(*client_of)(void *object);

  /* The driver has begun to connect a socket for the client. Hooks are called from now on. If the client is done
   * before `opened`, the driver closes the socket at once. */
  void (*dial)(kw_client *client, const kw_peer_hooks *hooks, int64_t now);

  /* The socket is connected: the client may be fed and written from now on. has_h2: TLS has agreed on HTTP/2 (ALPN);
   * without TLS false. */
  void (*opened)(kw_client *client, bool has_h2, int64_t now);

  /* True if Lua has something to do for the client: the loop should return to Lua. */
  bool (*has_news)(const kw_client *client);

  /* }====== */
} kw_engine;

#endif
