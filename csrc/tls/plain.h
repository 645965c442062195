/* SPDX-License-Identifier: MIT
 *
 * plain: recognizes by its first bytes that the other side speaks HTTP instead of TLS.
 */
#ifndef KW_TLS_PLAIN_H
#define KW_TLS_PLAIN_H

#include "base/slice.h"

typedef enum kw_tls_plain {
  KW_TLS_IS_TLS,     /* or anything else except HTTP, which OpenSSL then refuses */
  KW_TLS_IS_UNCLEAR, /* more bytes are needed */
  KW_TLS_IS_HTTP1,
  KW_TLS_IS_HTTP2
} kw_tls_plain;

/* Returns the protocol of a client by its first bytes. At most 24 are needed. */
kw_tls_plain kw_tls_recognize_client(kw_slice bytes);

/* Returns the protocol of a server by its first bytes. At most 9 are needed. */
kw_tls_plain kw_tls_recognize_server(kw_slice bytes);

/* Returns the answer to a client that speaks HTTP: an HTTP/1.1 response with the text that the port speaks TLS. An
 * HTTP/2 client must not get frames: after SETTINGS gRPC's clients count the connection as successful, and would
 * reconnect without a pause. */
kw_slice kw_tls_plain_answer(kw_tls_plain kind);

#endif
