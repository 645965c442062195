/* SPDX-License-Identifier: MIT */
#include "rpc/hosts.h"

#include "base/mem.h"
#include "http/text.h"

struct kw_host {
  kw_host *next;
  char name[];
};

bool kw_hosts_add(kw_server *server, kw_slice name) {
  kw_host *host = kw_alloc_zeroed(sizeof *host + name.len + 1);
  if (host == NULL) return false;
  host->next = server->hosts;
  if (name.len > 0) memcpy(host->name, name.data, name.len);
  server->hosts = host;
  return true;
}

void kw_hosts_free(kw_server *server) {
  while (server->hosts != NULL) {
    kw_host *host = server->hosts;
    server->hosts = host->next;
    kw_free(host);
  }
}

/* Returns the host without its port, and an IPv6 address without its brackets. */
static kw_slice host_of(kw_slice authority) {
  bool is_literal = authority.data[0] == '[';
  const uint8_t *first = authority.data + is_literal;
  size_t len = authority.len - is_literal;
  const uint8_t *end = memchr(first, is_literal ? ']' : ':', len);
  return kw_slice_of(first, end == NULL ? len : (size_t)(end - first));
}

static bool is_listed(const kw_server *server, kw_slice name) {
  const kw_host *host = server->hosts;
  while (host != NULL && strcmp(host->name, "*") != 0 && !kw_text_equal(name, host->name))
    host = host->next;
  return host != NULL;
}

/* True for an address of 127.0.0.0/8. */
static bool is_loopback_ipv4(kw_slice host) {
  size_t n_dots = 0;
  bool was_digit = false;
  if (!kw_slice_begins(host, kw_slice_text("127."))) return false;
  for (size_t i = 0; i < host.len; i++) {
    bool is_digit = host.data[i] >= '0' && host.data[i] <= '9';
    if (!is_digit && !(was_digit && host.data[i] == '.')) return false;
    n_dots += !is_digit;
    was_digit = is_digit;
  }
  return was_digit && n_dots == 3;
}

static bool is_loopback(kw_slice host) {
  static const char below[] = ".localhost";
  const size_t len = sizeof below - 1;
  if (kw_text_equal(host, "localhost") || kw_text_equal(host, "::1")) return true;
  if (host.len >= len && kw_text_equal(kw_slice_of(host.data + host.len - len, len), below))
    return true;
  return is_loopback_ipv4(host);
}

static bool is_over_loopback(const kw_peer *peer) {
  static const char *const starts[] = {"127.", "[::1]", "[::ffff:127."};
  kw_slice remote = kw_slice_text(peer->driver.hooks.remote);
  for (size_t i = 0; i < KW_LENGTH(starts); i++)
    if (kw_slice_begins(remote, kw_slice_text(starts[i]))) return true;
  return false;
}

bool kw_hosts_allow(const kw_peer *peer, kw_slice authority) {
  if (authority.len == 0) return true;
  kw_slice host = host_of(authority);
  if (is_listed(peer->server, host)) return true;
  if (is_over_loopback(peer)) return is_loopback(host);
  return peer->server->hosts == NULL || peer->is_tls;
}
