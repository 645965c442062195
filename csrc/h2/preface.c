/* SPDX-License-Identifier: MIT
 *
 * preface: refuses clients that do not begin their connections with the preface of HTTP/2.
 *
 * The client gets an answer in HTTP/1.1, the likeliest of the other protocols. kw_session_why tells the operator to
 * which protocol the first bytes belong. The preface begins with "PRI", so the first byte distinguishes most protocols.
 */
#include "h2/state.h"

#define LOOKED_AT 8 /* first bytes that are compared */
#define TLS_HANDSHAKE                                                                              \
  0x16 /* first byte of a TLS record with a ClientHello; its version follows, which begins with 3 */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static const char *const methods[] = {"GET ",     "POST ",  "PUT ",     "HEAD ", "DELETE ",
                                      "OPTIONS ", "PATCH ", "CONNECT ", "TRACE "};

/* True if the first bytes are a method of HTTP/1.1, or the beginning of one. */
static bool is_http1(kw_slice first) {
  for (size_t i = 0; i < KW_LENGTH(methods); i++) {
    size_t n = kw_min_size(first.len, strlen(methods[i]));
    if (memcmp(first.data, methods[i], n) == 0) return true;
  }
  return false;
}

static bool is_tls(kw_slice first) {
  return first.data[0] == TLS_HANDSHAKE && (first.len == 1 || first.data[1] == 3);
}

static void note_protocol(kw_session *session, kw_slice first) {
  if (is_tls(first)) {
    kw_session_note_why(session, "the client speaks TLS, but this port is plain");
  } else if (is_http1(first)) {
    kw_session_note_why(session, "the client speaks HTTP/1.1, but this port is HTTP/2");
  } else {
    kw_session_note_why(session, "the client does not speak HTTP/2");
  }
}

static void answer(kw_session *session) {
  static const char text[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                             "content-type: text/plain\r\n"
                             "content-length: 45\r\n"
                             "connection: close\r\n\r\n"
                             "keywatch speaks gRPC over HTTP/2 on this port";
  kw_chain_add(&session->out, kw_slice_of(text, sizeof text - 1));
}

void kw_preface_refuse(kw_session *session, size_t n_before, kw_slice bytes) {
  uint8_t first[LOOKED_AT];
  size_t n = kw_min_size(n_before, LOOKED_AT), more = kw_min_size(bytes.len, LOOKED_AT - n);
  memcpy(first, preface, n);
  memcpy(first + n, bytes.data, more);
  session->is_foreign = true;
  note_protocol(session, kw_slice_of(first, n + more));
  if (session->out.len == 0) answer(session);
}
