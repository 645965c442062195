/* SPDX-License-Identifier: MIT
 *
 * tls: the contract between keywatch.tls and a driver.
 *
 * TLS does no I/O: a *channel* takes ciphertext and plaintext, and gives plaintext and ciphertext. A driver owns the
 * socket. Shared objects cannot link against each other. So keywatch.tls publishes this struct of functions in the
 * registry of the Lua state, as a full userdata under KW_TLS_KEY; a driver checks its version.
 *
 *   a server                                  a client
 *     context_of, retain    once                context_of, retain    once
 *     accept                each socket         connect               each socket
 *   each time that a socket is readable, while KW_TLS_WANTS_BYTES is set
 *     feed                  only queues the bytes
 *   while KW_TLS_HAS_WORK is set, whenever the driver has time for it
 *     step                  one flight of the handshake: at most one signature and one key exchange
 *   while KW_TLS_MAY_READ is set
 *     read_from             handles at most one record
 *   while KW_TLS_WANTS_TEXT is set
 *     write                 encrypts
 *   after each of these
 *     pending, wrote        until nothing is pending or the socket is full
 *     state                 KW_TLS_IS_DONE and nothing pending: close the socket; `failure` says why
 *
 * Rules
 *   - A channel is used by the thread of the Lua state of its context.
 *   - No function blocks. Only accept and connect touch the file system: they read files that have changed.
 *   - Once the process is in exit, channels neither read nor write nor fail: their state has no bits except
 *     KW_TLS_IS_OPEN. Other threads may still call the functions.
 *   - No function fails halfway. A channel that runs out of memory, or whose other side breaks the protocol, is done.
 *   - OpenSSL's queue of errors, which belongs to the thread, is empty after each function.
 */
#ifndef KW_FACE_TLS_H
#define KW_FACE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define KW_TLS_KEY "keywatch.tls"
#define KW_TLS_VERSION 4
#define KW_TLS_CONTEXT_NAME                                                                        \
  "keywatch.tls.context" /* metatable of context objects, in the registry */

#define KW_TLS_INPUT                                                                               \
  65536 /* limit of ciphertext that `feed` queues, in bytes: one read of a loop */
#define KW_TLS_OUTPUT                                                                              \
  65536                 /* bytes of ciphertext that may be pending before `write` takes no more */
#define KW_TLS_TEXT 768 /* bytes of the text of a failure, with the 0 at its end */
#define KW_TLS_IDENTITY 4096 /* limit of `identity` in bytes */

typedef struct kw_tls_context kw_tls_context;
typedef struct kw_tls_channel kw_tls_channel;

/* The kinds of failures, each with its name in Lua. */
#define KW_TLS_FAULTS(X)                                                                           \
  X(NONE, "none")                                                                                  \
  X(OPTION, "option")           /* an option breaks a rule: the caller is wrong */                 \
  X(FILE, "file")               /* the file or the PEM text of an option is unusable */            \
  X(CERTIFICATE, "certificate") /* the certificate of the other side was refused */                \
  X(ALERT, "alert")             /* the other side has refused the connection, and says why */      \
  X(PROTOCOL, "protocol")       /* the other side breaks the protocol, or shares none with us */   \
  X(PLAIN, "plain")             /* the other side does not speak TLS, but HTTP */                  \
  X(CUT, "cut")                 /* the connection has ended without close_notify */                \
  X(MEMORY, "memory")                                                                              \
  X(ENDING, "ending") /* the process is in exit */

typedef enum kw_tls_fault {
#define X(name, text) KW_TLS_##name,
  KW_TLS_FAULTS(X)
#undef X
} kw_tls_fault;

/* Why something failed. All zero: nothing has failed. */
typedef struct kw_tls_failure {
  kw_tls_fault fault;
  char text[KW_TLS_TEXT];
} kw_tls_failure;

/* Ciphertext of the caller, valid during one call. */
typedef struct kw_tls_input {
  const uint8_t *bytes;
  size_t len;
} kw_tls_input;

/* What `state` returns, as bits. */
enum {
  KW_TLS_WANTS_BYTES = 1, /* there is room for ciphertext; without this bit `feed` may take none */
  KW_TLS_HAS_WORK = 2,    /* the handshake can continue: call `step` */
  KW_TLS_IS_OPEN = 4,     /* the handshake is over */
  KW_TLS_MAY_READ = 8,    /* there may be plaintext */
  KW_TLS_WANTS_TEXT = 16, /* there is room for plaintext */
  KW_TLS_GOT_END = 32,    /* the other side has sent close_notify: no more plaintext follows */
  KW_TLS_IS_DONE = 64     /* the channel has failed, or `finish` was called */
};

typedef struct kw_tls {
  uint32_t version; /* KW_TLS_VERSION; with another one nothing below may be used */

  /* Returns the context of a context object (a userdata of KW_TLS_CONTEXT_NAME), or NULL if it is closed. */
  kw_tls_context *(*context_of)(void *object);

  /* Takes one more reference to a context, and returns the context. */
  kw_tls_context *(*retain)(kw_tls_context *context);

  /* Drops a reference to a context. */
  void (*release)(kw_tls_context *context);

  /* True for a context of servers, false for one of clients. */
  bool (*is_server)(const kw_tls_context *context);

  /* Makes a channel for a socket that was accepted. The channel retains the context. Returns NULL, with *failure set,
   * if memory is short, the context is one of clients, or the process is in exit. */
  kw_tls_channel *(*accept)(kw_tls_context *context, kw_tls_failure *failure);

  /* Makes a channel for a socket that was dialed. `host` is the name or address that the certificate has to be for,
   * unless the context has a server name. `cache_key`, for example "host:port", is the key under which a session is
   * stored for resumption; the certificates of a stored session are verified here. Returns NULL, with *failure set, if
   * memory is short, the context is one of servers, `host` is missing or unusable, or the process is in exit. */
  kw_tls_channel *(*connect)(kw_tls_context *context, const char *host, const char *cache_key,
                             kw_tls_failure *failure);

  /* Queues ciphertext. len 0: the other side has closed its end. Returns how many bytes were taken: all, as long as
   * no more than KW_TLS_INPUT are waiting. */
  size_t (*feed)(kw_tls_channel *channel, const void *bytes, size_t len);

  /* Continues the handshake, if KW_TLS_HAS_WORK is set. */
  void (*step)(kw_tls_channel *channel);

  /* Handles at most one record, and decrypts at most `cap` bytes of it. Returns their number. 0: the record has no
   * plaintext, or is incomplete; repeat while KW_TLS_MAY_READ is set. Reads queued ciphertext first, and then that of
   * *input, which is not queued: *input is moved past the used bytes. If *input is unchanged and KW_TLS_MAY_READ is not
   * set, the channel cannot read now (it is done, or not open, or must be written first), and the rest has to be fed,
   * or passed again. */
  size_t (*read_from)(kw_tls_channel *channel, kw_tls_input *input, void *to, size_t cap);

  /* Encrypts. Returns how many bytes were taken: fewer than `len` if enough ciphertext is pending, or the channel has
   * failed or is not open. */
  size_t (*write)(kw_tls_channel *channel, const void *bytes, size_t len);

  /* Ends the channel with close_notify. Bytes that the other side still sends are not read. */
  void (*finish)(kw_tls_channel *channel);

  /* Returns the number of pieces of pending ciphertext, at most `max`, and puts them into `pieces`. They are valid
   * until the next call for this channel. */
  size_t (*pending)(const kw_tls_channel *channel, struct iovec *pieces, size_t max);

  /* The socket has taken the first `bytes` bytes of the pending ciphertext. */
  void (*wrote)(kw_tls_channel *channel, size_t bytes);

  /* Returns bits of the enum above. */
  unsigned (*state)(const kw_tls_channel *channel);

  /* Returns why the channel has failed; KW_TLS_NONE: it has not. The result lives as long as the channel. */
  const kw_tls_failure *(*failure)(const kw_tls_channel *channel);

  /* Returns names of the other side's certificate, *len bytes: the common name, or an empty text, and then each
   * organization; every text ends with a 0. NULL and *len 0: no certificate was verified. The texts are UTF-8, and at
   * most KW_TLS_IDENTITY bytes: organizations that do not fit are left out. They live as long as the channel. */
  const char *(*identity)(const kw_tls_channel *channel, size_t *len);

  /* True if the two sides have agreed on HTTP/2 (ALPN), after the handshake. */
  bool (*has_h2)(const kw_tls_channel *channel);

  /* Frees the channel, and releases its context. */
  void (*close)(kw_tls_channel *channel);
} kw_tls;

#endif
