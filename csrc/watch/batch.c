/* SPDX-License-Identifier: MIT */
#include "watch/batch.h"

#include "base/mem.h"

kw_batch *kw_batch_new(size_t cap) {
  if (cap > UINT32_MAX) return NULL;
  kw_batch *batch = kw_alloc(sizeof *batch + cap * sizeof batch->events[0]);
  if (batch != NULL) *batch = (kw_batch){.refs = 1};
  return batch;
}

void kw_batch_add(kw_batch *batch, const kw_event *event) {
  batch->events[batch->n++] = *event;
  batch->bytes += kw_blob_retain(event->record)->len;
  if (event->prev != NULL) batch->bytes += kw_blob_retain(event->prev)->len;
}

void kw_batch_release(kw_batch *batch) {
  if (--batch->refs > 0) return;
  for (uint32_t i = 0; i < batch->n; i++) {
    kw_blob_release(batch->events[i].record);
    if (batch->events[i].prev != NULL) kw_blob_release(batch->events[i].prev);
  }
  kw_free(batch);
}
