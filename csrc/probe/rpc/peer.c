/* SPDX-License-Identifier: MIT */
#include "rpc/peer.c"

#include "probe/checks.h"

/* The charges of a watch stream's outlet are not summed here, so an account with one may hold more than the sum. */
const char *kw_peer_fault(const kw_peer *peer) {
  const kw_stream *stream = NULL;
  bool has_watch = false;
  if (peer->http != NULL) return kw_http_fault(peer->http);
  size_t charge = kw_session_charge(peer->session);
  while ((stream = kw_session_next(peer->session, stream)) != NULL) {
    const kw_method *method = stream->method;
    has_watch = has_watch || (method != NULL && method->on_pull == kw_watch_methods->on_pull);
    charge += kw_call_charge(stream) + kw_range_answer_charge(stream) +
              kw_lease_answer_charge(stream) + kw_write_queue_charge(stream);
  }
  size_t held = kw_peer_held(peer);
  if (held < charge || (held > charge && !has_watch))
    return "the account is not charged for what the connection holds";
  return kw_session_fault(peer->session);
}
