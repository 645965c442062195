/* SPDX-License-Identifier: MIT */
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define DEFAULT_WINDOW 65535
#define MAX_WINDOW 0x7fffffffU
#define MAX_FRAME 16384         /* the largest frame that every server accepts */
#define MAX_OUT (256 * 1024)    /* bytes to write: above, a connection starts no request */
#define RETURN_ABOVE (1U << 30) /* received bytes after which a WINDOW_UPDATE is sent */
#define MAX_STREAM_ID 0x7fffffffU

enum frame_type {
  DATA = 0,
  HEADERS = 1,
  RST_STREAM = 3,
  SETTINGS = 4,
  PUSH_PROMISE = 5,
  PING = 6,
  GOAWAY = 7,
  WINDOW_UPDATE = 8
};

enum frame_flag { END_STREAM = 0x1, ACK = 0x1, END_HEADERS = 0x4, PADDED = 0x8 };

enum setting { MAX_CONCURRENT_STREAMS = 3, INITIAL_WINDOW_SIZE = 4 };

static int epoll = -1;
static unsigned n_opening;
static uint8_t input[256 * 1024];

void die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("load: ", stderr);
  vfprintf(stderr, format, args);
  fputs("\n", stderr);
  va_end(args);
  exit(1);
}

static uint32_t get32(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put32(uint8_t *to, uint32_t v) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Sending
 * --------------------------------------------------------------------------------------------------------- */

static uint8_t *reserve(connection *c, size_t len) {
  if (c->out_at > 0 && c->out_at == c->out_len) c->out_at = c->out_len = 0;
  if (c->out_len + len > c->out_cap) {
    c->out_cap = 2 * (c->out_len + len);
    c->out = realloc(c->out, c->out_cap);
    if (c->out == NULL) die("no memory");
  }
  c->out_len += len;
  return c->out + c->out_len - len;
}

static uint8_t *put_frame(connection *c, uint8_t type, uint8_t flags, uint32_t id, size_t len) {
  uint8_t *to = reserve(c, FRAME_HEAD + len);
  put32(to, (uint32_t)len << 8 | type);
  to[4] = flags;
  put32(to + 5, id);
  return to + FRAME_HEAD;
}

static void put_window_update(connection *c, uint32_t id, uint32_t n) {
  put32(put_frame(c, WINDOW_UPDATE, 0, id, 4), n);
}

static void put_opening(connection *c) {
  memcpy(reserve(c, strlen(PREFACE)), PREFACE, strlen(PREFACE));
  uint8_t *setting = put_frame(c, SETTINGS, 0, 0, 6);
  setting[0] = 0;
  setting[1] = INITIAL_WINDOW_SIZE;
  put32(setting + 2, MAX_WINDOW);
  put_window_update(c, 0, MAX_WINDOW - DEFAULT_WINDOW);
}

bool connection_has_room(const connection *c) {
  return c->out_len - c->out_at < MAX_OUT;
}

static void watch_socket(connection *c, int op, bool for_write) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (for_write) event.events |= EPOLLOUT;
  if (epoll_ctl(epoll, op, c->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
  c->waits_for_write = for_write;
}

/* Both return -1 with *wait set if the socket is not ready. */
static ssize_t write_socket(connection *c, const uint8_t *bytes, size_t len, tls_wait *wait) {
  if (c->tls != NULL) return tls_write(c->tls, bytes, len, wait);
  ssize_t n = write(c->fd, bytes, len);
  if (n < 0 && errno != EAGAIN) die("cannot write to the server: %s", strerror(errno));
  *wait = TLS_WAITS_FOR_WRITE;
  return n;
}

static ssize_t read_socket(connection *c, uint8_t *to, size_t cap, tls_wait *wait) {
  if (c->tls != NULL) return tls_read(c->tls, to, cap, wait);
  ssize_t n = read(c->fd, to, cap);
  if (n < 0 && errno != EAGAIN) die("cannot read from the server: %s", strerror(errno));
  *wait = TLS_WAITS_FOR_READ;
  return n;
}

static void wait_for_socket(connection *c, tls_wait wait) {
  if (wait == TLS_WAITS_FOR_WRITE) watch_socket(c, EPOLL_CTL_MOD, true);
}

void connection_flush(connection *c) {
  tls_wait wait;
  if (c->waits_for_write || c->is_shaking) return;
  while (c->out_at < c->out_len) {
    ssize_t n = write_socket(c, c->out + c->out_at, c->out_len - c->out_at, &wait);
    if (n < 0) {
      wait_for_socket(c, wait);
      return;
    }
    c->out_at += (size_t)n;
  }
}

/* Skips ids whose place is taken by a stream that lives long. */
static stream *take_place(connection *c) {
  for (;; c->next_id += 2) {
    if (c->next_id > MAX_STREAM_ID) die("a connection has used up its stream ids");
    stream *s = &c->streams[c->next_id >> 1 & c->mask];
    if (s->id == 0) return s;
  }
}

stream *connection_start(connection *c, const uint8_t *block, size_t len, bool ends) {
  stream *s = take_place(c);
  *s = (stream){.id = c->next_id};
  c->next_id += 2;
  c->n_open++;
  memcpy(put_frame(c, HEADERS, END_HEADERS | (ends ? END_STREAM : 0), s->id, len), block, len);
  return s;
}

static size_t sendable(const connection *c, const stream *s, size_t len) {
  int64_t n = c->initial_window + s->credit;
  if (n > c->window) n = c->window;
  if (n > MAX_FRAME) n = MAX_FRAME;
  if (n < 0) return 0;
  return (size_t)n < len ? (size_t)n : len;
}

bool connection_send(connection *c, stream *s, const uint8_t *bytes, size_t len, size_t *sent,
                     bool ends) {
  while (*sent < len) {
    size_t n = sendable(c, s, len - *sent);
    if (n == 0) return false;
    bool is_last = *sent + n == len;
    memcpy(put_frame(c, DATA, is_last && ends ? END_STREAM : 0, s->id, n), bytes + *sent, n);
    *sent += n;
    c->window -= (int64_t)n;
    s->credit -= (int64_t)n;
  }
  return true;
}

/* Receiving
 * ------------------------------------------------------------------------------------------------------- */

static stream *find(connection *c, uint32_t id) {
  if (c->streams == NULL) return NULL;
  stream *s = &c->streams[id >> 1 & c->mask];
  return s->id == id && id != 0 ? s : NULL;
}

static void settle(connection *c) {
  if (c->is_ready || !c->has_settings || !c->has_ack) return;
  c->is_ready = true;
  n_opening--;
}

static void apply_setting(connection *c, unsigned name, uint32_t value) {
  if (name == INITIAL_WINDOW_SIZE) c->initial_window = value;
  if (name == MAX_CONCURRENT_STREAMS && value < c->max_open) c->max_open = value;
}

static void take_settings(connection *c, const uint8_t *bytes) {
  if (c->flags & ACK) {
    c->has_ack = true;
  } else {
    if (c->len > MAX_GATHERED) die("SETTINGS of %u bytes", (unsigned)c->len);
    for (uint32_t i = 0; i + 6 <= c->len; i += 6)
      apply_setting(c, (unsigned)bytes[i] << 8 | bytes[i + 1], get32(bytes + i + 2));
    put_frame(c, SETTINGS, ACK, 0, 0);
    c->has_settings = true;
  }
  settle(c);
}

static void take_window_update(connection *c, const uint8_t *bytes) {
  uint32_t n = get32(bytes) & MAX_WINDOW;
  stream *s = find(c, c->id);
  if (c->id == 0) c->window += n;
  if (s != NULL) s->credit += n;
}

static _Noreturn void take_goaway(const connection *c, const uint8_t *bytes) {
  uint32_t n = c->len < MAX_GATHERED ? c->len : MAX_GATHERED;
  die("the server sent GOAWAY, code %u: %.*s", (unsigned)get32(bytes + 4), (int)n - 8, bytes + 8);
}

static void return_window(connection *c, uint32_t id, uint32_t *unreturned, uint32_t len) {
  *unreturned += len;
  if (*unreturned <= RETURN_ABOVE) return;
  put_window_update(c, id, *unreturned);
  *unreturned = 0;
}

static void take_data(connection *c, const uint8_t *bytes, size_t len) {
  stream *s = find(c, c->id);
  if (s == NULL) die("DATA for stream %u, which is not open", (unsigned)c->id);
  s->n_received += len;
  return_window(c, 0, &c->unreturned, (uint32_t)len);
  return_window(c, s->id, &s->unreturned, (uint32_t)len);
  c->hooks->on_data(c, s, bytes, len);
}

static void end_stream(connection *c) {
  stream *s = find(c, c->id);
  if (s == NULL) die("an end of stream %u, which is not open", (unsigned)c->id);
  if (s == c->sending) die("stream %u was ended before its request was sent", (unsigned)c->id);
  c->hooks->on_end(c, s);
  s->id = 0;
  c->n_open--;
}

static void begin_frame(connection *c) {
  uint32_t first = get32(c->head);
  c->len = c->left = first >> 8;
  c->type = (uint8_t)first;
  c->flags = c->head[4];
  c->id = get32(c->head + 5) & MAX_STREAM_ID;
  if (c->type == DATA && c->flags & PADDED) die("padded DATA, which is not understood");
  if (c->type == PUSH_PROMISE) die("the server pushes");
}

static void need(const connection *c, uint32_t len) {
  if (c->len < len) die("a frame of type %u and only %u bytes", c->type, (unsigned)c->len);
}

static void end_frame(connection *c, const uint8_t *bytes) {
  switch (c->type) {
    case DATA:
      if (c->len <= MAX_GATHERED) take_data(c, bytes, c->len);
      if (c->flags & END_STREAM) end_stream(c);
      break;
    case HEADERS:
      if (c->flags & END_STREAM) end_stream(c);
      break;
    case RST_STREAM:
      need(c, 4);
      if (find(c, c->id) != NULL)
        die("the server reset stream %u, code %u", (unsigned)c->id, (unsigned)get32(bytes));
      break;
    case SETTINGS: take_settings(c, bytes); break;
    case PING:
      need(c, 8);
      if (!(c->flags & ACK)) memcpy(put_frame(c, PING, ACK, 0, 8), bytes, 8);
      break;
    case GOAWAY: need(c, 8); take_goaway(c, bytes);
    case WINDOW_UPDATE:
      need(c, 4);
      take_window_update(c, bytes);
      break;
  }
}

/* Passes long DATA on in the pieces in which it comes. The rest of another frame that does not fit is not needed. */
static const uint8_t *take_payload(connection *c, const uint8_t *bytes, size_t len) {
  if (c->type == DATA && c->len > MAX_GATHERED) {
    take_data(c, bytes, len);
    return bytes;
  }
  if (len == c->len) return bytes;
  size_t at = c->len - c->left;
  if (at < MAX_GATHERED)
    memcpy(c->gathered + at, bytes, len < MAX_GATHERED - at ? len : MAX_GATHERED - at);
  return c->gathered;
}

static void feed(connection *c, const uint8_t *at, const uint8_t *end) {
  if (c->is_raw) {
    c->hooks->on_data(c, NULL, at, (size_t)(end - at));
    return;
  }
  while (at < end) {
    if (c->n_head < FRAME_HEAD) {
      size_t n = FRAME_HEAD - c->n_head;
      if (n > (size_t)(end - at)) n = (size_t)(end - at);
      memcpy(c->head + c->n_head, at, n);
      c->n_head += (uint8_t)n;
      at += n;
      if (c->n_head < FRAME_HEAD) return;
      begin_frame(c);
    }
    size_t n = c->left < (size_t)(end - at) ? c->left : (size_t)(end - at);
    const uint8_t *payload = take_payload(c, at, n);
    at += n;
    c->left -= (uint32_t)n;
    if (c->left > 0) return;
    end_frame(c, payload);
    c->n_head = 0;
  }
}

/* With TLS all is read: epoll does not know of what OpenSSL has taken from the socket. */
static void read_some(connection *c) {
  tls_wait wait;
  do {
    ssize_t n = read_socket(c, input, sizeof input, &wait);
    if (n == 0) die("the server closed a connection");
    if (n < 0) return;
    feed(c, input, input + n);
  } while (c->tls != NULL);
}

/* Goes on with the TLS handshake. Returns true when it is over. */
static bool shake(connection *c) {
  if (!c->is_shaking) return true;
  tls_wait wait = tls_shake(c->tls);
  wait_for_socket(c, wait);
  c->is_shaking = wait != TLS_WAITS_FOR_NOTHING;
  return !c->is_shaking;
}

/* All of them
 * ----------------------------------------------------------------------------------------------------- */

int connection_dial(const char *host, int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket: %s", strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, host, &to.sin_addr) != 1) die("not an IPv4 address: %s", host);
  if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
    die("cannot connect to %s:%d: %s", host, port, strerror(errno));
  return fd;
}

/* Has twice as many places as needed, so that a free one is found soon. */
static void make_places(connection *c, uint32_t max_open) {
  uint32_t n = 2;
  while (n < 2 * max_open) n *= 2;
  c->streams = calloc(n, sizeof *c->streams);
  if (c->streams == NULL) die("no memory");
  c->mask = n - 1;
}

static void watch_new_socket(connection *c) {
  if (epoll < 0) epoll = epoll_create1(EPOLL_CLOEXEC);
  watch_socket(c, EPOLL_CTL_ADD, true);
}

connection *connection_open_raw(const char *host, int port, const char *request,
                                const connection_hooks *hooks) {
  connection *c = malloc(sizeof *c);
  if (c == NULL) die("no memory");
  *c = (connection){.hooks = hooks, .fd = connection_dial(host, port), .is_raw = true};
  watch_new_socket(c);
  memcpy(reserve(c, strlen(request)), request, strlen(request));
  return c;
}

connection *connection_open(const char *host, int port, bool is_tls, uint32_t max_open,
                            const connection_hooks *hooks) {
  connection *c = malloc(sizeof *c);
  if (c == NULL) die("no memory");
  *c = (connection){.hooks = hooks,
                    .fd = connection_dial(host, port),
                    .next_id = 1,
                    .max_open = max_open,
                    .window = DEFAULT_WINDOW,
                    .initial_window = DEFAULT_WINDOW};
  if (is_tls) c->tls = tls_open(c->fd);
  c->is_shaking = is_tls;
  if (max_open > 0) make_places(c, max_open);
  watch_new_socket(c);
  put_opening(c);
  n_opening++;
  return c;
}

unsigned connections_opening(void) {
  return n_opening;
}

static void serve(connection *c, uint32_t events) {
  if (events & EPOLLOUT) watch_socket(c, EPOLL_CTL_MOD, false);
  if (!shake(c)) return;
  if (events & ~(uint32_t)EPOLLOUT) read_some(c);
  c->hooks->on_room(c);
  connection_flush(c);
}

void connections_turn(int ms) {
  struct epoll_event events[256];
  int n = epoll_wait(epoll, events, sizeof events / sizeof events[0], ms);
  if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
  for (int i = 0; i < n; i++) serve(events[i].data.ptr, events[i].events);
}
