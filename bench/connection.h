/* SPDX-License-Identifier: MIT
 *
 * connection: HTTP/2 as a load generator needs it, over a plain socket, with prior knowledge.
 *
 * It costs less than any server: header blocks are made once and sent as they are, those that come are skipped, and
 * DATA is given where it was read. Windows of ours are as large as can be; those of the server are kept to. Whatever
 * the server does wrong, and a stream or a connection that it ends, ends the program with a sentence.
 */
#ifndef BENCH_CONNECTION_H
#define BENCH_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD 9
#define MAX_GATHERED 256 /* a frame up to this length is given whole, even if it came in pieces */

typedef struct stream {
  uint32_t id;         /* 0: this place is free */
  uint32_t unreturned; /* bytes that came since the last WINDOW_UPDATE */
  int64_t credit;      /* what may be sent, less the server's initial window */
  uint64_t n_received; /* bytes of DATA */
  void *ctx;           /* of who started it */
} stream;

typedef struct connection connection;

typedef struct connection_hooks {
  void (*on_data)(connection *c, stream *s, const uint8_t *bytes, size_t len);
  void (*on_end)(connection *c, stream *s); /* the place of s is free afterwards */
  void (*on_room)(connection *c);           /* after whatever may let it send more */
} connection_hooks;

struct connection {
  const connection_hooks *hooks;
  int fd;
  bool is_ready;        /* the server's SETTINGS have come, and it has acknowledged ours */
  bool waits_for_write; /* epoll tells when the socket takes more */

  stream *streams; /* by id: the place of a stream is found by masking */
  uint32_t mask;
  uint32_t next_id;
  uint32_t n_open;
  uint32_t max_open;

  int64_t window; /* of the server, for the connection and for a new stream */
  int64_t initial_window;
  uint32_t unreturned;

  uint8_t head[FRAME_HEAD]; /* of the frame that is coming */
  uint8_t n_head;
  uint8_t type;
  uint8_t flags;
  bool has_settings;
  bool has_ack;
  uint32_t id;
  uint32_t len;
  uint32_t left;
  uint8_t gathered[MAX_GATHERED];

  uint8_t *out; /* what was not written yet */
  size_t out_at;
  size_t out_len;
  size_t out_cap;

  stream *sending; /* its message is not sent to the end; NULL: none */
  size_t sent;
  uint64_t key;

  uint32_t cursor; /* among the streams: whose turn it is */
};

/* Begins to connect to a port of an IPv4 address. The connection will have up to max_open streams at a time. */
connection *connection_open(const char *host, int port, uint32_t max_open,
                            const connection_hooks *hooks);

/* How many connections wait for the server's part of the opening. */
unsigned connections_opening(void);

/* Starts a stream with a header block. The connection must have a place for it. */
stream *connection_start(connection *c, const uint8_t *block, size_t len);

/* Sends of a message what lies after *sent, as far as windows let; true when all of it is sent. The last byte ends the
 * stream if `ends`. */
bool connection_send(connection *c, stream *s, const uint8_t *bytes, size_t len, size_t *sent,
                     bool ends);

/* Whether more may be put into its buffer; and writing that. */
bool connection_has_room(const connection *c);
void connection_flush(connection *c);

/* Waits up to so many milliseconds, and reads and writes what can be. */
void connections_turn(int ms);

/* Ends the program with a sentence. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
