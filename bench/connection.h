/* SPDX-License-Identifier: MIT
 *
 * connection: an HTTP/2 client for load generation, over plain sockets with prior knowledge, or over TLS.
 *
 * It costs less than any server does: header blocks are made once, received header blocks are skipped, and DATA is
 * passed on without a copy. Our flow-control windows are as large as possible; those of the server are obeyed. If
 * the server violates the protocol, or resets a stream or closes a connection, the program ends with a sentence.
 */
#ifndef BENCH_CONNECTION_H
#define BENCH_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tls.h"

#define FRAME_HEAD 9
#define MAX_GATHERED                                                                               \
  256 /* a frame up to this length is passed on whole, even if it came in pieces */

typedef struct stream {
  uint32_t id;         /* 0: the place is free */
  uint32_t unreturned; /* bytes that came since the last WINDOW_UPDATE */
  int64_t credit;      /* bytes that may be sent, without the server's initial window */
  uint64_t n_received; /* bytes of DATA */
  void *ctx;           /* of the caller */
} stream;

typedef struct connection connection;

typedef struct connection_hooks {
  void (*on_data)(connection *c, stream *s, const uint8_t *bytes, size_t len);
  void (*on_end)(connection *c, stream *s); /* the place of s is free afterwards */
  void (*on_room)(connection *c); /* called when the connection may be able to send more */
} connection_hooks;

struct connection {
  const connection_hooks *hooks;
  int fd;
  tls *tls;             /* NULL: the socket is plain */
  bool is_shaking;      /* the TLS handshake goes on */
  bool is_ready;        /* the server's SETTINGS have come, and it has acknowledged ours */
  bool is_raw;          /* HTTP/1.1: bytes are passed on as they come, without a stream */
  bool waits_for_write; /* epoll watches for room in the socket */

  stream *streams; /* the place of a stream is its id, masked */
  uint32_t mask;
  uint32_t next_id;
  uint32_t n_open;
  uint32_t max_open;

  int64_t window; /* of the server, for the connection and for a new stream */
  int64_t initial_window;
  uint32_t unreturned;

  uint8_t head[FRAME_HEAD]; /* of the frame that is being received */
  uint8_t n_head;
  uint8_t type;
  uint8_t flags;
  bool has_settings;
  bool has_ack;
  uint32_t id;
  uint32_t len;
  uint32_t left;
  uint8_t gathered[MAX_GATHERED];

  uint8_t *out; /* bytes that are not written yet */
  size_t out_at;
  size_t out_len;
  size_t out_cap;

  stream *sending; /* stream with a partly sent message; NULL: none */
  size_t sent;
  uint64_t key;

  uint32_t cursor; /* the stream whose turn it is */
};

/* Opens a nonblocking socket, and begins to connect it to a port of an IPv4 address. */
int connection_dial(const char *host, int port);

/* Begins to connect to a port of an IPv4 address. The connection will have up to max_open streams at a time. */
connection *connection_open(const char *host, int port, bool is_tls, uint32_t max_open,
                            const connection_hooks *hooks);

/* Begins to connect, and sends a request of HTTP/1.1. Its answer is passed to on_data as it comes, without a stream. */
connection *connection_open_raw(const char *host, int port, const char *request,
                                const connection_hooks *hooks);

/* Returns how many connections wait for the SETTINGS of the server. */
unsigned connections_opening(void);

/* Starts a stream with a header block, which ends it if `ends`. The connection must have a free place. */
stream *connection_start(connection *c, const uint8_t *block, size_t len, bool ends);

/* Sends a message from *sent on, as far as the flow-control windows allow. Returns true when all of it is sent. If
 * `ends`, its last byte ends the stream. */
bool connection_send(connection *c, stream *s, const uint8_t *bytes, size_t len, size_t *sent,
                     bool ends);

/* Whether more may be put into its buffer; and writing that. */
bool connection_has_room(const connection *c);
void connection_flush(connection *c);

/* Waits up to so many milliseconds, then reads and writes on all sockets that are ready. */
void connections_turn(int ms);

/* Ends the program with a sentence. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
