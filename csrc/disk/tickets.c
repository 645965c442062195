/* SPDX-License-Identifier: MIT */
#include "disk/tickets.h"

static void remember(kw_tickets *tickets, kw_ticket_failure failure) {
  kw_ticket_failure *oldest = &tickets->failures[tickets->n_failures++ % KW_REMEMBERED_FAILURES];
  if (tickets->n_failures > KW_REMEMBERED_FAILURES) tickets->forgotten = oldest->to;
  *oldest = failure;
}

/* The ticket after the failed ones is settled, too: callers that have nothing to wait for get it. */
void kw_tickets_fail(kw_tickets *tickets, int rc) {
  remember(tickets, (kw_ticket_failure){tickets->settled + 1, tickets->gathering, rc});
  tickets->settled = tickets->gathering + 1;
  tickets->gathering += 2;
}

int kw_tickets_outcome(const kw_tickets *tickets, uint64_t ticket) {
  if (ticket == 0) return KW_OK;
  if (!kw_tickets_is_settled(tickets, ticket)) return KW_UNSETTLED;
  if (ticket <= tickets->forgotten) return KW_ERR_STORAGE;
  for (size_t i = 0; i < kw_min_size(tickets->n_failures, KW_REMEMBERED_FAILURES); i++) {
    const kw_ticket_failure *f = &tickets->failures[i];
    if (ticket >= f->from && ticket <= f->to) return f->rc;
  }
  return KW_OK;
}
