/* SPDX-License-Identifier: MIT */
#include "rpc/server.c"

#include "probe/checks.h"

const char *kw_server_fault(kw_server *server) {
  size_t held = 0;
  const char *fault = NULL;
  for (kw_link *link = server->peers.next; link != &server->peers; link = link->next) {
    held += kw_peer_held(kw_peer_at(link));
    if (fault == NULL) fault = kw_peer_fault(kw_peer_at(link));
  }
  if (held != kw_server_held(server)) return "the budget is not what connections hold";
  if (kw_chain_charge(&server->discarded) != server->remaining.held)
    return "the budget is not what discarded answers take";
  return fault;
}
