/* SPDX-License-Identifier: MIT
 *
 * tickets: numbers for commit groups, and the outcome of each group.
 *
 * Every commit group has a ticket; tickets rise from 1. A ticket is settled when its group is durable or has failed.
 * Ticket 0 belongs to no group: it is always settled, and its outcome is KW_OK.
 *
 * A failure also fails all other groups that are not durable. Only the last failures are remembered.
 */
#ifndef KW_DISK_TICKETS_H
#define KW_DISK_TICKETS_H

#include "base/common.h"
#include "model/error.h"

#define KW_UNSETTLED 1 /* positive, unlike every error */
/* Callers ask for the outcome of their ticket long before there are so many newer failures. */
#define KW_REMEMBERED_FAILURES 16

typedef struct kw_ticket_failure {
  uint64_t from; /* first ticket that failed */
  uint64_t to;   /* last ticket that failed */
  int rc;
} kw_ticket_failure;

typedef struct kw_tickets {
  uint64_t gathering;                                 /* ticket of the gathering group */
  uint64_t settled;                                   /* newest settled ticket */
  kw_ticket_failure failures[KW_REMEMBERED_FAILURES]; /* ring buffer */
  size_t n_failures;  /* all failures so far, including forgotten ones */
  uint64_t forgotten; /* newest ticket of a failure that is not remembered; 0: none */
} kw_tickets;

/* The first gathering group has ticket 1. */
static inline void kw_tickets_init(kw_tickets *tickets) {
  *tickets = (kw_tickets){.gathering = 1};
}

/* Called when the gathering group is submitted. The new gathering group gets the next ticket. */
static inline void kw_tickets_submit(kw_tickets *tickets) {
  tickets->gathering++;
}

/* Called when the submitted group has become durable. Settles its ticket. */
static inline void kw_tickets_succeed(kw_tickets *tickets) {
  tickets->settled++;
}

/* Called when the submitted group has failed, and with it the gathering one. Settles both tickets with `rc`, and the
 * ticket after them with KW_OK: no group gets that ticket, it is for callers that have nothing to wait for. */
void kw_tickets_fail(kw_tickets *tickets, int rc);

/* True once the group of a ticket is durable or has failed. */
static inline bool kw_tickets_is_settled(const kw_tickets *tickets, uint64_t ticket) {
  return ticket <= tickets->settled;
}

/* Returns KW_OK if the group of a ticket is durable, KW_UNSETTLED if the ticket is not settled, else the error of the
 * group. The outcome of a ticket that is not newer than a forgotten failure is unknown: KW_ERR_STORAGE. */
int kw_tickets_outcome(const kw_tickets *tickets, uint64_t ticket);

#endif
