/* SPDX-License-Identifier: MIT */
#include "tls/plain.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAME_HEAD 9 /* bytes of the head of an HTTP/2 frame */
#define SETTINGS 4   /* type of the first frame of a server */

#define TEXT "this port speaks TLS: use https://"
#define RESPONSE                                                                                   \
  "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 35\r\n"                 \
  "Connection: close\r\n\r\n" TEXT "\n"

_Static_assert(sizeof TEXT - 1 == 34, "the length above is that of the text and a line break");

/* Compares the beginning of the bytes with `text`. Returns 0 if it differs, 1 if there are too few bytes to know, and 2
 * if it is equal. */
static int begins(kw_slice bytes, kw_slice text) {
  size_t n = kw_min_size(bytes.len, text.len);
  if (memcmp(bytes.data, text.data, n) != 0) return 0;
  return n == text.len ? 2 : 1;
}

kw_tls_plain kw_tls_recognize_client(kw_slice bytes) {
  static const char *const methods[] = {"GET ",    "HEAD ",    "POST ",    "PUT ",  "PATCH ",
                                        "DELETE ", "OPTIONS ", "CONNECT ", "TRACE "};
  if (bytes.len == 0) return KW_TLS_IS_UNCLEAR;
  int is_http2 = begins(bytes, kw_slice_text(PREFACE));
  if (is_http2 != 0) return is_http2 == 1 ? KW_TLS_IS_UNCLEAR : KW_TLS_IS_HTTP2;
  kw_tls_plain result = KW_TLS_IS_TLS;
  for (size_t i = 0; i < KW_LENGTH(methods); i++) {
    int is_http1 = begins(bytes, kw_slice_text(methods[i]));
    if (is_http1 == 2) return KW_TLS_IS_HTTP1;
    if (is_http1 == 1) result = KW_TLS_IS_UNCLEAR;
  }
  return result;
}

kw_tls_plain kw_tls_recognize_server(kw_slice bytes) {
  if (bytes.len == 0) return KW_TLS_IS_UNCLEAR;
  int is_http1 = begins(bytes, kw_slice_text("HTTP/1."));
  if (is_http1 != 0) return is_http1 == 1 ? KW_TLS_IS_UNCLEAR : KW_TLS_IS_HTTP1;
  if (bytes.data[0] != 0) return KW_TLS_IS_TLS; /* a SETTINGS frame is short */
  if (bytes.len < FRAME_HEAD) return KW_TLS_IS_UNCLEAR;
  return bytes.data[3] == SETTINGS ? KW_TLS_IS_HTTP2 : KW_TLS_IS_TLS;
}

kw_slice kw_tls_plain_answer(kw_tls_plain kind) {
  bool is_http = kind == KW_TLS_IS_HTTP1 || kind == KW_TLS_IS_HTTP2;
  return is_http ? kw_slice_text(RESPONSE) : kw_slice_of("", 0);
}
