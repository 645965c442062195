/* SPDX-License-Identifier: MIT
 *
 * watch_call: a Watch call of a client, and the subscriptions that share it.
 *
 * The server answers create requests in the order in which they were sent: so the client knows which subscription a
 * new watch id belongs to. A watch call lives as long as its client's call. When that ends, its subscriptions become
 * idle.
 */
#ifndef KW_RPC_WATCH_CALL_H
#define KW_RPC_WATCH_CALL_H

#include "rpc/client.h"
#include "rpc/subscription.h"

typedef struct kw_watch_call_info {
  uint64_t heard; /* answers that came */
  size_t watches; /* attached subscriptions */
  bool is_held;   /* paused by flow control, because its only subscription is not read */
} kw_watch_call_info;

/* Begins a Watch call, as kw_client_call does. Returns its number, or 0. An answer may come in fragments of max_torn
 * bytes together; a subscription that is sent more fails. */
uint64_t kw_watch_call_open(kw_client *client, const kw_header_field *metadata, size_t n,
                            size_t max_torn);

/* Returns the watch call of a number, or NULL if it has ended. Valid until the call ends. */
kw_watch_call *kw_watch_call_find(const kw_client *client, uint64_t number);

/* Attaches an idle subscription: asks the server to create its watch. Returns false, with nothing changed, if memory
 * is short. */
bool kw_watch_call_attach(kw_watch_call *call, kw_subscription *sub);

/* Takes a subscription off its call, if it has one, and cancels its watch at the server. The subscription becomes
 * idle, unless it has failed. If the call was paused and has no other subscription, it goes on. */
void kw_watch_call_detach(kw_subscription *sub);

/* Asks the server for progress of the whole call. */
void kw_watch_call_ask(kw_watch_call *call);

/* Believes progress of the whole call from now on. Some servers send it before the events that it covers, so it is
 * not believed by default. */
void kw_watch_call_trust(kw_watch_call *call);

/* Lets a paused call go on: its subscription has been read. */
void kw_watch_call_relieve(kw_watch_call *call);

/* Describes a watch call. */
kw_watch_call_info kw_watch_call_inspect(const kw_watch_call *call);

/* Puts an attached subscription into its connection's list of ready watches, if it is armed and something can be
 * taken, or if it is followed. */
void kw_watch_call_wake(kw_subscription *sub);

#endif
