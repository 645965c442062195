/* SPDX-License-Identifier: MIT
 *
 * batch: events in order, counted, shared by all watchers that are told the same.
 *
 * A batch holds whole revisions: all events of a revision that concern its watchers are in it, or none.
 */
#ifndef KW_WATCH_BATCH_H
#define KW_WATCH_BATCH_H

#include "model/event.h"

typedef struct kw_batch {
  uint32_t refs;
  uint32_t n;
  size_t bytes;  /* of all records, which is what a queue is charged for it */
  kw_blob *wire; /* its events as they go over the wire, once somebody has asked; or NULL */
  kw_event events[];
} kw_batch;

/* A batch with room for `cap` events and one reference, or NULL if memory is short. */
kw_batch *kw_batch_new(size_t cap);

/* Adds an event and takes references to its records. There must be room. */
void kw_batch_add(kw_batch *batch, const kw_event *event);

void kw_batch_release(kw_batch *batch);

/* The events as fields of a WatchResponse, made once for all who ask; NULL if memory is short. */
kw_blob *kw_batch_wire(kw_batch *batch);

static inline kw_batch *kw_batch_retain(kw_batch *batch) {
  batch->refs++;
  return batch;
}

#endif
