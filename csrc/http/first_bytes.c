/* SPDX-License-Identifier: MIT */
#include "http/first_bytes.h"

#include "http/text.h"

#define MAX_METHOD (KW_FIRST_BYTES - 1)
#define TLS_HANDSHAKE 0x16

static kw_first method_of(kw_slice bytes) {
  const uint8_t *space = bytes.len > 0 ? memchr(bytes.data, ' ', bytes.len) : NULL;
  size_t len = space == NULL ? bytes.len : (size_t)(space - bytes.data);
  if (len > MAX_METHOD || !kw_text_is_token(kw_slice_of(bytes.data, len))) return KW_FIRST_FOREIGN;
  return space == NULL ? KW_FIRST_UNKNOWN : KW_FIRST_HTTP1;
}

kw_first kw_first_bytes(kw_slice bytes) {
  static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  size_t n = kw_min_size(bytes.len, sizeof preface - 1);
  if (n == 0) return KW_FIRST_UNKNOWN;
  if (memcmp(bytes.data, preface, n) == 0)
    return n == sizeof preface - 1 ? KW_FIRST_HTTP2 : KW_FIRST_UNKNOWN;
  if (bytes.data[0] == TLS_HANDSHAKE && (n == 1 || bytes.data[1] == 3))
    return n == 1 ? KW_FIRST_UNKNOWN : KW_FIRST_TLS;
  return method_of(bytes);
}
