/* SPDX-License-Identifier: MIT */
#include "watch/batch.h"

#include "base/mem.h"
#include "codec/event.h"

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
  if (batch->wire != NULL) kw_blob_release(batch->wire);
  kw_free(batch);
}

kw_blob *kw_batch_wire(kw_batch *batch) {
  size_t size = 0;
  if (batch->wire != NULL) return batch->wire;
  for (uint32_t i = 0; i < batch->n; i++) size += kw_event_size(&batch->events[i]);
  batch->wire = kw_blob_new(size);
  if (batch->wire == NULL) return NULL;
  uint8_t *to = batch->wire->bytes;
  for (uint32_t i = 0; i < batch->n; i++) to = kw_event_put(&batch->events[i], to);
  return batch->wire;
}
