/* SPDX-License-Identifier: MIT */
#include "handshakes.h"

#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_MS 100

typedef struct slot {
  tls *tls; /* NULL: the slot is free */
  bool is_ending;
} slot;

static void begin(slot *s, struct pollfd *p, const char *host, int port) {
  p->fd = connection_dial(host, port);
  p->events = POLLOUT;
  *s = (slot){.tls = tls_open(p->fd)};
}

/* Reads what the server sends up to its end. Returns true at the end. A server that closes the socket before it has
 * read close_notify resets the connection, which is an end, too. */
static bool has_ended(int fd) {
  char bytes[4096];
  ssize_t n;
  while ((n = read(fd, bytes, sizeof bytes)) > 0) continue;
  if (n < 0 && errno != EAGAIN && errno != ECONNRESET)
    die("cannot read from the server: %s", strerror(errno));
  return n == 0 || errno == ECONNRESET;
}

/* Goes on with a slot. Returns true when its connection has ended. */
static bool go_on(slot *s, struct pollfd *p) {
  if (!s->is_ending) {
    tls_wait wait = tls_shake(s->tls);
    p->events = wait == TLS_WAITS_FOR_WRITE ? POLLOUT : POLLIN;
    if (wait != TLS_WAITS_FOR_NOTHING) return false;
    tls_finish(s->tls);
    shutdown(p->fd, SHUT_WR);
    s->is_ending = true;
  }
  return has_ended(p->fd);
}

static void end(slot *s, struct pollfd *p) {
  tls_close(s->tls);
  close(p->fd);
  p->fd = -1; /* poll skips it */
  s->tls = NULL;
}

void handshakes_make(const char *host, int port, uint64_t n, uint64_t at_once, void (*look)(void)) {
  slot *slots = calloc(at_once, sizeof *slots);
  struct pollfd *polled = calloc(at_once, sizeof *polled);
  uint64_t n_begun = 0, n_done = 0;
  if (slots == NULL || polled == NULL) die("no memory");
  for (uint64_t i = 0; i < at_once; i++) polled[i].fd = -1;
  while (n_done < n) {
    for (uint64_t i = 0; i < at_once; i++) {
      if (slots[i].tls != NULL || n_begun == n) continue;
      begin(&slots[i], &polled[i], host, port);
      n_begun++;
    }
    if (poll(polled, (nfds_t)at_once, LOOK_MS) < 0 && errno != EINTR)
      die("poll: %s", strerror(errno));
    for (uint64_t i = 0; i < at_once; i++) {
      if (slots[i].tls == NULL || polled[i].revents == 0 || !go_on(&slots[i], &polled[i])) continue;
      end(&slots[i], &polled[i]);
      n_done++;
    }
    look();
  }
  free(slots);
  free(polled);
}
