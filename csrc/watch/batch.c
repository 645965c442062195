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

size_t kw_batch_size(const kw_batch *batch, uint32_t from, uint32_t to) {
  size_t size = 0;
  for (uint32_t i = from; i < to; i++) size += kw_event_size(&batch->events[i]);
  return size;
}

uint8_t *kw_batch_put(const kw_batch *batch, uint32_t from, uint32_t to, uint8_t *bytes) {
  for (uint32_t i = from; i < to; i++) bytes = kw_event_put(&batch->events[i], bytes);
  return bytes;
}

kw_blob *kw_batch_wire(kw_batch *batch) {
  if (batch->wire != NULL) return batch->wire;
  batch->wire = kw_blob_new(kw_batch_size(batch, 0, batch->n));
  if (batch->wire == NULL) return NULL;
  kw_batch_put(batch, 0, batch->n, batch->wire->bytes);
  return batch->wire;
}
