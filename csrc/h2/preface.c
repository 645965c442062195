/* SPDX-License-Identifier: MIT
 *
 * preface: the first bytes of a connection, and what to say to a peer that does not begin as HTTP/2 does.
 */
#include <stdio.h>

#include "h2/state.h"

void kw_session_note_breach(kw_session *session, const char *words) {
  if (session->why[0] != 0) return;
  snprintf(session->why, sizeof session->why, "%s",
           session->has_peer_settings ? words : "it does not speak HTTP/2");
}

void kw_preface_refuse(kw_session *session) {
  static const char answer[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                               "content-type: text/plain\r\n"
                               "content-length: 45\r\n"
                               "connection: close\r\n\r\n"
                               "keywatch speaks gRPC over HTTP/2 on this port";
  kw_chain_drop(&session->out);
  kw_chain_add(&session->out, kw_slice_of(answer, sizeof answer - 1));
}
