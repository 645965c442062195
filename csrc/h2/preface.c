/* SPDX-License-Identifier: MIT
 *
 * preface: refuses clients that do not begin their connections with the HTTP/2 preface.
 *
 * kw_session_why reports to which protocol the first bytes belong. The owner has found that they are not HTTP/1.1.
 */
#include "h2/state.h"

#define LOOKED_AT 8 /* first bytes that are compared */
#define TLS_HANDSHAKE                                                                              \
  0x16 /* first byte of a TLS record with a ClientHello; its version follows, which begins with 3 */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static bool is_tls(kw_slice first) {
  return first.data[0] == TLS_HANDSHAKE && (first.len == 1 || first.data[1] == 3);
}

static void note_protocol(kw_session *session, kw_slice first) {
  if (is_tls(first)) {
    kw_session_note_why(session, "the client speaks TLS, but this port is plain");
  } else {
    kw_session_note_why(session, "the client speaks neither HTTP/2 nor HTTP/1.1");
  }
}

/* Answers in HTTP/1.1, the likeliest of the other protocols: a TLS client then reports that the port is plain. */
static void answer(kw_session *session) {
  static const char text[] = "HTTP/1.1 400 Bad Request\r\n"
                             "content-type: text/plain\r\n"
                             "content-length: 48\r\n"
                             "connection: close\r\n\r\n"
                             "keywatch speaks HTTP/1.1 and HTTP/2 on this port";
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
