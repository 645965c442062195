/* SPDX-License-Identifier: MIT */
#include <netdb.h>
#include <stdio.h>

#include "uv/address.h"

int kw_address_init_ip(kw_address *address, const char *host, uint16_t port) {
  *address = (kw_address){.len = sizeof address->ip4};
  if (uv_ip4_addr(host, port, &address->ip4) == 0) return 0;
  *address = (kw_address){.len = sizeof address->ip6};
  return uv_ip6_addr(host, port, &address->ip6);
}

int kw_address_init_path(kw_address *address, const char *path, size_t len) {
  *address = (kw_address){.len = sizeof address->path};
  if (len == 0 || memchr(path, 0, len) != NULL) return UV_EINVAL;
  if (len >= sizeof address->path.sun_path) return UV_ENAMETOOLONG;
  address->path.sun_family = AF_UNIX;
  memcpy(address->path.sun_path, path, len);
  return 0;
}

int kw_address_init_socket(kw_address *address, int fd) {
  *address = (kw_address){.len = sizeof address->path};
  return getsockname(fd, &address->any, &address->len) < 0 ? uv_translate_sys_error(errno) : 0;
}

int kw_address_init_remote(kw_address *address, int fd) {
  *address = (kw_address){.len = sizeof address->path};
  return getpeername(fd, &address->any, &address->len) < 0 ? uv_translate_sys_error(errno) : 0;
}

static bool is_among(const kw_address *address, const kw_address *addresses, int n) {
  for (int i = 0; i < n; i++) {
    bool is_same = addresses[i].len == address->len &&
                   memcmp(&addresses[i].any, &address->any, address->len) == 0;
    if (is_same) return true;
  }
  return false;
}

int kw_address_resolve(uv_loop_t *loop, const char *host, kw_address *addresses, int max) {
  uv_getaddrinfo_t request;
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  int n = 0, rc = uv_getaddrinfo(loop, &request, NULL, host, NULL, &hints);
  if (rc < 0) return rc;
  for (const struct addrinfo *info = request.addrinfo; info != NULL && n < max;
       info = info->ai_next) {
    kw_address address = {.len = info->ai_addrlen};
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    memcpy(&address.any, info->ai_addr, info->ai_addrlen);
    if (!is_among(&address, addresses, n)) addresses[n++] = address;
  }
  uv_freeaddrinfo(request.addrinfo);
  return n;
}

bool kw_address_is_path(const kw_address *address) {
  return address->any.sa_family == AF_UNIX;
}

uint16_t kw_address_port(const kw_address *address) {
  return ntohs(address->any.sa_family == AF_INET ? address->ip4.sin_port : address->ip6.sin6_port);
}

int kw_address_host(const kw_address *address, char text[KW_ADDRESS_TEXT]) {
  if (address->any.sa_family == AF_INET) return uv_ip4_name(&address->ip4, text, KW_ADDRESS_TEXT);
  return uv_ip6_name(&address->ip6, text, KW_ADDRESS_TEXT);
}

void kw_address_print(const kw_address *address, char *text, size_t size) {
  char host[KW_ADDRESS_TEXT];
  if (kw_address_is_path(address)) {
    snprintf(text, size, "unix");
  } else if (kw_address_host(address, host) == 0) {
    bool is_ip6 = address->any.sa_family == AF_INET6;
    snprintf(text, size, is_ip6 ? "[%s]:%d" : "%s:%d", host, kw_address_port(address));
  } else if (size > 0) {
    text[0] = 0;
  }
}
