/* SPDX-License-Identifier: MIT
 *
 * engine: what core offers to those who drive sockets. Shared objects cannot link against each other, so core publishes
 * this struct of functions in the registry, in a full userdata under KW_ENGINE_KEY.
 *
 * A peer is one connection: bytes go in by `feed`, come out by `pending` and `wrote`, time comes in by `now`,
 * milliseconds of CLOCK_MONOTONIC. Nothing here does I/O, reads a clock, waits, or calls Lua.
 * Hooks may be called from any function of the engine, also for another peer than the one that is being fed: they only
 * note what they are told, and call nothing of the engine.
 *
 *   driver                          engine
 *   accept a socket        ->       accept               or: dial one -> dial, and `opened` once it is connected
 *   bytes, or the end      ->       feed                 -> on_dirty (of this peer, or of those who watch)
 *   end of the tick, for each dirty peer:
 *     pending, write, wrote ... until nothing is pending or the socket is full
 *     if KW_PEER_IS_DONE and nothing is pending: shut the socket, close
 */
#ifndef KW_FACE_ENGINE_H
#define KW_FACE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/bell.h"

#define KW_ENGINE_KEY "keywatch.engine"
#define KW_ENGINE_VERSION 5
#define KW_SERVER_NAME "keywatch.core.server" /* the metatable of server objects, in the registry */
#define KW_CLIENT_NAME "keywatch.core.client" /* the same of client objects */

#define KW_REMOTE_TEXT 64 /* bytes of a peer's address, with the 0 at its end */

#define KW_BELL_NAME "keywatch.uv.bell" /* the metatable of userdata that hold a kw_bell */

typedef struct kw_server kw_server;
typedef struct kw_client kw_client;
typedef struct kw_peer kw_peer;

typedef struct kw_peer_hooks {
  /* Its pending bytes or its state may have changed. */
  void (*on_dirty)(void *ctx);
  /* `step` is wanted at this time, and no longer at another. */
  void (*on_deadline)(void *ctx, int64_t when);
  /* Asked after each message: whether the peer has had its time for this turn. What has come beyond that waits for
   * `step`, which is then wanted at once. NULL: it has all the time that it takes. */
  bool (*is_turn_over)(void *ctx);
  void *ctx;
  char remote[KW_REMOTE_TEXT]; /* who is at the other end, for those who ask; or "" */
} kw_peer_hooks;

enum {
  /* It may be fed; if not, its socket is left alone until it is dirty again. */
  KW_PEER_WANTS_BYTES = 1,
  /* Once nothing is pending, the socket is to be closed. */
  KW_PEER_IS_DONE = 2
};

/* How the bytes of a peer are moved: of one that was accepted, a kw_peer, or of one that is dialed, a kw_client. */
typedef struct kw_peer_face {
  /* Bytes that came; none: the other side has closed. */
  void (*feed)(void *peer, const void *bytes, size_t len, int64_t now);

  /* What is to be written, in at most `max` pieces; how many. They stay where they are until `wrote` has counted them,
   * whatever else is called meanwhile. */
  size_t (*pending)(void *peer, struct iovec *pieces, size_t max);
  void (*wrote)(void *peer, size_t bytes);

  unsigned (*state)(const void *peer);

  /* What the peer's deadline was set for. */
  void (*step)(void *peer, int64_t now);

  /* The socket is gone, for a reason that the system has words for, or in order: NULL. No hook is called for it any
   * more. Frees a peer that was accepted; a client lives on. */
  void (*close)(void *peer, const char *why);
} kw_peer_face;

typedef struct kw_engine {
  uint32_t version;
  const kw_peer_face *accepted;
  const kw_peer_face *dialed;

  /* Of a server object of core, which the driver keeps alive as long as it has its pointer. */
  kw_server *(*server_of)(void *object);

  /* In every turn of the loop, before and after dirty peers are looked at, and at the time that it returned last.
   * Returns when it is next wanted; INT64_MAX: not by itself. */
  int64_t (*tend)(kw_server *server, int64_t now);

  /* What is to be rung when `tend` is wanted out of turn: something has become durable. The reference is the server's,
   * or its store's. */
  void (*set_bell)(kw_server *server, kw_bell bell);

  /* Whether Lua has something to do for the server, so that the loop should return to it. */
  bool (*has_work)(const kw_server *server);

  /* Whether the store of the server is in the middle of a call of Lua, so that whoever asks is a finalizer: then
   * nothing may be fed, stepped or tended. */
  bool (*is_busy)(const kw_server *server);

  /* A connection that was accepted. NULL if memory is short, or the server takes no more of them. */
  kw_peer *(*accept)(kw_server *server, const kw_peer_hooks *hooks, int64_t now);

  /* Of a client object of core, which the driver keeps alive as long as it has its pointer; NULL: it is closed, or was
   * dialed before. */
  kw_client *(*client_of)(void *object);

  /* A socket of a client is on its way. From here on the client's deadline is told, and heeded: if it is done before it
   * was opened, the socket is closed at once. */
  void (*dial)(kw_client *client, const kw_peer_hooks *hooks, int64_t now);

  /* It is connected: now it may be fed and written. */
  void (*opened)(kw_client *client, int64_t now);

  /* Whether Lua has something to do for the client, so that the loop should return to it. */
  bool (*has_news)(const kw_client *client);
} kw_engine;

#endif
