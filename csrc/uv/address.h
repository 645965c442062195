/* SPDX-License-Identifier: MIT
 *
 * address: the address of a socket: an IP address with a port, or the path of a Unix socket. Errors are libuv's.
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

/* Bytes of an IP address in digits, with the 0 at its end. */
#define KW_ADDRESS_TEXT INET6_ADDRSTRLEN

/* Reads an IP address in digits; names are not resolved. Returns 0, or UV_EINVAL if `host` is no IP address. */
int kw_address_init_ip(kw_address *address, const char *host, uint16_t port);

/* Sets the path of a Unix socket. Returns 0; UV_ENAMETOOLONG if the path does not fit; UV_EINVAL if it is empty or
 * has a 0 in it. */
int kw_address_init_path(kw_address *address, const char *path, size_t len);

/* Reads the address that a socket is bound to. Returns 0 or an error. */
int kw_address_init_socket(kw_address *address, int fd);

/* Reads the address of the other end of a connected socket. Returns 0 or an error. */
int kw_address_init_remote(kw_address *address, int fd);

/* Resolves a host name, and blocks until then. The loop need not run: libuv only requires one. Returns libuv's
 * negative error, or the number of IP addresses in `addresses`, at most `max`, each of them once and with port 0. */
int kw_address_resolve(uv_loop_t *loop, const char *host, kw_address *addresses, int max);

/* True for the path of a Unix socket. */
bool kw_address_is_path(const kw_address *address);

/* Returns the port of an IP address. The address must not be a path. */
uint16_t kw_address_port(const kw_address *address);

/* Writes "127.0.0.1:1234", "[::1]:1234" or "unix", at most `size` bytes with the 0 at its end; or "" if libuv cannot
 * print the address. */
void kw_address_print(const kw_address *address, char *text, size_t size);

/* Writes the IP address in digits, without the port. The address must not be a path. Returns 0 or an error. */
int kw_address_host(const kw_address *address, char text[KW_ADDRESS_TEXT]);

#endif
