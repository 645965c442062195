/* SPDX-License-Identifier: MIT
 *
 * watch_call: a Watch call of a client, and the subscriptions that share it.
 *
 * The server answers create requests in the order in which they were sent, so the client knows which subscription a
 * new watch id belongs to. A watch call lives as long as its client's call. When that ends, its subscriptions become
 * idle.
 *
 * A function that sends to the server may end the call, if memory is short. A function that resumes a paused call may
 * end it, too, because it handles waiting answers. A call that ends is freed, so callers look it up by its number each
 * time.
 */
#ifndef KW_RPC_WATCH_CALL_H
#define KW_RPC_WATCH_CALL_H

#include "rpc/client.h"
#include "rpc/subscription.h"

typedef struct kw_watch_call_info {
  uint64_t n_answers; /* number of received answers */
  size_t watches;     /* number of attached subscriptions */
  bool is_paused;     /* paused by flow control, because its only subscription is not read */
} kw_watch_call_info;

/* Begins a Watch call with `n` fields of metadata. Returns its number; 0 if memory is short, or the connection takes no
 * more calls. max_torn is the limit in bytes of one answer together with earlier fragments of the same revision. A
 * subscription that receives more fails with KW_ERR_ANSWER_TOO_LARGE. */
uint64_t kw_watch_call_open(kw_client *client, const kw_http_field *metadata, size_t n,
                            size_t max_torn);

/* Returns the watch call of a number, or NULL if it has ended. Valid until the call ends. */
kw_watch_call *kw_watch_call_find(const kw_client *client, uint64_t number);

/* Attaches an idle subscription: asks the server to create its watch. The subscription must live until it is detached
 * or the call has ended. Returns false, with nothing changed, if there is no memory to attach it. If there is no memory
 * to send the request, the call ends, the subscription is idle again, and true is returned. */
bool kw_watch_call_attach(kw_watch_call *call, kw_subscription *sub);

/* Takes a subscription off its call, if it has one. The subscription becomes idle, unless it has failed. The server
 * is asked to cancel its watch; a watch that the server has not created yet is canceled when it is. If the call was
 * paused and has no other subscription, it resumes. */
void kw_watch_call_detach(kw_subscription *sub);

/* Takes a subscription off its call and its feed, and drops it. */
void kw_watch_call_drop(kw_subscription *sub);

/* Requests progress of the whole call from the server. The answer advances the call's subscriptions after
 * kw_watch_call_trust. */
void kw_watch_call_ask(kw_watch_call *call);

/* Uses progress of the whole call from now on. Some servers send it before the events that it covers, so it is ignored
 * by default. */
void kw_watch_call_trust(kw_watch_call *call);

/* Describes a watch call. */
kw_watch_call_info kw_watch_call_inspect(const kw_watch_call *call);

/* Adds an attached subscription to the list of ready watches of its connection: if it is armed and has a notice, which
 * disarms it, or if announces_progress is set. If the subscription has a feed, moves its notices to the replica
 * instead, and adds it if the feed has to notify the owner. Does nothing for a subscription without a call. */
void kw_watch_call_wake(kw_subscription *sub);

#endif
