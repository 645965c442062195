/* SPDX-License-Identifier: MIT
 *
 * message_queue: a FIFO of messages of one call that Lua has not taken yet.
 *
 * The queue counts its bytes, and charges them to an account if it has one. It has no limit: its user pauses the stream
 * when `charge` is too high.
 */
#ifndef KW_RPC_MESSAGE_QUEUE_H
#define KW_RPC_MESSAGE_QUEUE_H

#include "base/account.h"
#include "base/blob.h"
#include "base/link.h"
#include "base/mem.h"

#define KW_MESSAGE_BYTES 64    /* charge of a message, besides its bytes */
#define KW_MESSAGE_JOINED 4096 /* bytes of a message that kw_message_queue_join fills */

typedef struct kw_queued_message {
  kw_link link;
  kw_blob *bytes;
  size_t room; /* for more bytes, behind those of the blob */
} kw_queued_message;

typedef struct kw_message_queue {
  kw_link messages;    /* oldest first */
  size_t charge;       /* of all messages */
  kw_account *account; /* or NULL */
} kw_message_queue;

/* Makes an empty queue. The account, which may be NULL, has to outlive the messages. */
static inline void kw_message_queue_init(kw_message_queue *queue, kw_account *account) {
  kw_link_init(&queue->messages);
  queue->charge = 0;
  queue->account = account;
}

static inline bool kw_message_queue_is_empty(const kw_message_queue *queue) {
  return kw_link_is_alone(&queue->messages);
}

/* Returns the charge of a message of `len` bytes. */
static inline size_t kw_message_queue_cost(size_t len) {
  return KW_MESSAGE_BYTES + len;
}

/* Adds a copy of a message, and charges the account without asking it: a user that wants a limit asks before. Returns
 * false if memory is short. */
bool kw_message_queue_add(kw_message_queue *queue, kw_slice message);

/* Does the same for a part of a body: after the first message, short parts are joined, so that the cost does not depend
 * on how the sender has split the body. */
bool kw_message_queue_join(kw_message_queue *queue, kw_slice part);

/* Returns the oldest message. The queue must not be empty. */
static inline kw_blob *kw_message_queue_first(const kw_message_queue *queue) {
  return KW_CONTAINER_OF(queue->messages.next, kw_queued_message, link)->bytes;
}

/* Takes the oldest message. The caller owns the reference. The queue must not be empty. */
static inline kw_blob *kw_message_queue_take(kw_message_queue *queue) {
  kw_queued_message *first = KW_CONTAINER_OF(queue->messages.next, kw_queued_message, link);
  kw_blob *bytes = first->bytes;
  size_t cost = kw_message_queue_cost(bytes->len + first->room);
  kw_link_remove(&first->link);
  queue->charge -= cost;
  kw_account_credit(queue->account, cost);
  kw_free(first);
  return bytes;
}

/* Drops all messages. */
void kw_message_queue_clear(kw_message_queue *queue);

#endif
