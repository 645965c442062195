/* SPDX-License-Identifier: MIT
 *
 * plain: recognises those who speak HTTP where TLS is expected, by their first bytes.
 */
#ifndef KW_TLS_PLAIN_H
#define KW_TLS_PLAIN_H

#include "base/slice.h"

typedef enum kw_tls_plain {
  KW_TLS_IS_TLS,     /* or something else that is no HTTP; OpenSSL says what is wrong with it */
  KW_TLS_IS_UNCLEAR, /* more bytes are needed */
  KW_TLS_IS_HTTP1,
  KW_TLS_IS_HTTP2
} kw_tls_plain;

/* The first bytes of a client. At most 24 are needed. */
kw_tls_plain kw_tls_recognize_client(kw_slice bytes);

/* The first bytes of a server. At most 9 are needed. */
kw_tls_plain kw_tls_recognize_server(kw_slice bytes);

/* Returns what a client that speaks HTTP is answered with: a response of HTTP/1.1, whose text says that the port speaks
 * TLS. A client of HTTP/2 must not get frames: after SETTINGS gRPC's clients count the connection as one that was made,
 * and connect again without a pause. */
kw_slice kw_tls_plain_answer(kw_tls_plain kind);

#endif
