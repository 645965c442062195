/* SPDX-License-Identifier: MIT */
#include "rpc/message_queue.h"

bool kw_message_queue_add(kw_message_queue *queue, kw_slice bytes) {
  kw_queued_message *added = kw_alloc(sizeof *added);
  if (added == NULL) return false;
  added->bytes = kw_blob_copy(bytes);
  if (added->bytes == NULL) {
    kw_free(added);
    return false;
  }
  kw_link_init(&added->link);
  kw_link_add(&queue->messages, &added->link);
  queue->charge += kw_message_queue_cost(bytes.len);
  kw_account_charge(queue->account, kw_message_queue_cost(bytes.len));
  return true;
}

void kw_message_queue_clear(kw_message_queue *queue) {
  while (!kw_message_queue_is_empty(queue)) kw_blob_release(kw_message_queue_take(queue));
}
