/* SPDX-License-Identifier: MIT */
#include "rpc/message_queue.h"

/* Adds bytes behind those of a message, which has room for them. */
static void append(kw_queued_message *message, kw_slice bytes) {
  kw_blob *blob = message->bytes;
  if (bytes.len > 0) memcpy(blob->bytes + blob->len, bytes.data, bytes.len);
  blob->len += (uint32_t)bytes.len;
  message->room -= bytes.len;
}

static bool add(kw_message_queue *queue, kw_slice bytes, size_t size) {
  kw_queued_message *added = kw_alloc(sizeof *added);
  if (added == NULL) return false;
  *added = (kw_queued_message){.bytes = kw_blob_new(size), .room = size};
  if (added->bytes == NULL) {
    kw_free(added);
    return false;
  }
  added->bytes->len = 0;
  append(added, bytes);
  kw_link_init(&added->link);
  kw_link_add(&queue->messages, &added->link);
  queue->charge += kw_message_queue_cost(size);
  kw_account_charge(queue->account, kw_message_queue_cost(size));
  return true;
}

bool kw_message_queue_add(kw_message_queue *queue, kw_slice bytes) {
  return add(queue, bytes, bytes.len);
}

bool kw_message_queue_join(kw_message_queue *queue, kw_slice part) {
  if (kw_message_queue_is_empty(queue)) return add(queue, part, part.len);
  kw_queued_message *last = KW_CONTAINER_OF(queue->messages.prev, kw_queued_message, link);
  if (part.len > last->room)
    return add(queue, part, part.len < KW_MESSAGE_JOINED ? KW_MESSAGE_JOINED : part.len);
  append(last, part);
  return true;
}

void kw_message_queue_clear(kw_message_queue *queue) {
  while (!kw_message_queue_is_empty(queue)) kw_blob_release(kw_message_queue_take(queue));
}
