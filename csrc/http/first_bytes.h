/* SPDX-License-Identifier: MIT
 *
 * first_bytes: recognizes the protocol of a client by the first bytes of its connection.
 *
 *   PRI * HTTP/2.0 CR LF CR LF SM CR LF CR LF    HTTP/2: all 24 bytes
 *   0x16 0x03                                    TLS: the record of a ClientHello
 *   a token of at most 32 bytes and a space      HTTP/1.x: the method of a request
 *
 * Everything else is foreign. Methods such as PUT and PROPFIND begin like HTTP/2, with P or PR.
 */
#ifndef KW_HTTP_FIRST_BYTES_H
#define KW_HTTP_FIRST_BYTES_H

#include "base/slice.h"

#define KW_FIRST_BYTES 33 /* this many bytes are always enough */

typedef enum kw_first {
  KW_FIRST_UNKNOWN, /* more bytes are needed */
  KW_FIRST_HTTP1,
  KW_FIRST_HTTP2,
  KW_FIRST_TLS,
  KW_FIRST_FOREIGN
} kw_first;

/* Returns the protocol of a client. `bytes` are all bytes received so far, or the first KW_FIRST_BYTES or more. */
kw_first kw_first_bytes(kw_slice bytes);

#endif
