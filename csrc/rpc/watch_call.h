/* SPDX-License-Identifier: MIT
 *
 * watch_call: a Watch call of a client, and the subscriptions that share it.
 *
 * Creations are answered in the order in which they were asked for, which is how an id is known to be whose. It lives
 * as long as its call: when that has ended, its subscriptions are idle.
 */
#ifndef KW_RPC_WATCH_CALL_H
#define KW_RPC_WATCH_CALL_H

#include "rpc/client.h"
#include "rpc/subscription.h"

typedef struct kw_watch_call_info {
  uint64_t heard; /* answers that came */
  size_t watches; /* that are attached */
  bool is_held;   /* it is held back, since nobody reads its only watch */
} kw_watch_call_info;

/* Begins a call; its number, or 0 as of kw_client_call. Answers in pieces may have max_torn bytes. */
uint64_t kw_watch_call_open(kw_client *client, const kw_header_field *lines, size_t n,
                            size_t max_torn);

/* The call of a number, or NULL if it has ended. */
kw_watch_call *kw_watch_call_find(const kw_client *client, uint64_t number);

/* Asks for a subscription that is idle. False if memory is short. */
bool kw_watch_call_attach(kw_watch_call *call, kw_subscription *sub);

/* It leaves its call, if it has one, whose server is told, and which is held back no more if it was alone there. It is
 * idle, unless it has failed. */
void kw_watch_call_detach(kw_subscription *sub);

/* Asks for progress of the whole call. It is believed only from those who can be trusted: some servers send it before
 * the events that it covers. */
void kw_watch_call_ask(kw_watch_call *call);
void kw_watch_call_trust(kw_watch_call *call);

/* Somebody has read: a call that is held back goes on. */
void kw_watch_call_relieve(kw_watch_call *call);

kw_watch_call_info kw_watch_call_inspect(const kw_watch_call *call);

/* Puts it into the list of ready ones, if it is armed and has something. */
void kw_watch_call_wake(kw_subscription *sub);

#endif
