/* SPDX-License-Identifier: MIT
 *
 * address: where a socket listens: an IP address and a port, or a path. Errors are libuv's.
 */
#ifndef KW_UV_ADDRESS_H
#define KW_UV_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "base/common.h"

typedef struct kw_address {
  union {
    struct sockaddr any;
    struct sockaddr_in ip4;
    struct sockaddr_in6 ip6;
    struct sockaddr_un path;
  };
  socklen_t len;
} kw_address;

#define KW_ADDRESS_TEXT INET6_ADDRSTRLEN

/* Of digits: no name is looked up. UV_EINVAL if it is none. */
int kw_address_init_ip(kw_address *address, const char *host, uint16_t port);

/* UV_ENAMETOOLONG if the system has no room for it, UV_EINVAL if it is empty. */
int kw_address_init_path(kw_address *address, const char *path, size_t len);

/* What a socket is bound to, and who is at its other end. */
int kw_address_init_socket(kw_address *address, int fd);
int kw_address_init_remote(kw_address *address, int fd);

/* Looks a name up, and waits meanwhile. Returns how many addresses were found and put there, each once, with port 0. */
int kw_address_resolve(uv_loop_t *loop, const char *host, kw_address *addresses, int max);

bool kw_address_is_path(const kw_address *address);
uint16_t kw_address_port(const kw_address *address);

/* "127.0.0.1:1234", "[::1]:1234", or "unix"; cut off where the room ends. */
void kw_address_print(const kw_address *address, char *text, size_t size);

/* The IP address in digits. */
int kw_address_host(const kw_address *address, char text[KW_ADDRESS_TEXT]);

#endif
