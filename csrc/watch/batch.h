/* SPDX-License-Identifier: MIT
 *
 * batch: events in order of revision, with a reference count, shared by all watchers that get the same events.
 *
 * A batch holds whole revisions: of each revision either all events that its watchers want, or none.
 *
 * A *long* batch is one revision with more bytes than should be held at once. It has no events, only their number and
 * their size. A reader takes the events from the log, in turns: see watch/scroll.h.
 */
#ifndef KW_WATCH_BATCH_H
#define KW_WATCH_BATCH_H

#include "model/event.h"

typedef struct kw_batch {
  uint32_t refs;
  uint32_t n;    /* number of events */
  size_t bytes;  /* of all records, `prev` included: the batch's charge in an outlet */
  kw_blob *wire; /* the result of kw_batch_wire; NULL: not encoded yet */

  /* Of a long batch: */
  int64_t long_revision; /* its revision; 0: the batch is not long */
  uint32_t long_first;   /* the sub-revision of its first event, or less */
  size_t long_n;         /* number of events */
  size_t long_size;      /* bytes of the events as fields of a WatchResponse */
  int64_t compacted;     /* compacted revision of the store when the events were counted */

  kw_event events[];
} kw_batch;

/* Makes an empty batch with room for `cap` events and one reference. Returns NULL if memory is short. */
kw_batch *kw_batch_new(size_t cap);

/* Adds an event, and takes references to its records. There must be room. */
void kw_batch_add(kw_batch *batch, const kw_event *event);

/* Drops one reference. Without references the batch is freed, and its records are released. */
void kw_batch_release(kw_batch *batch);

/* Returns the size of the events [from, to) as fields of a WatchResponse. */
size_t kw_batch_size(const kw_batch *batch, uint32_t from, uint32_t to);

/* Encodes the events [from, to) as fields of a WatchResponse at `bytes`, which has room for kw_batch_size bytes.
 * Returns the end of what was written. */
uint8_t *kw_batch_put(const kw_batch *batch, uint32_t from, uint32_t to, uint8_t *bytes);

/* Returns the events encoded as fields of a WatchResponse. They are encoded once; the blob belongs to the batch.
 * Returns NULL if memory is short. */
kw_blob *kw_batch_wire(kw_batch *batch);

/* Takes one more reference, and returns the batch. */
static inline kw_batch *kw_batch_retain(kw_batch *batch) {
  batch->refs++;
  return batch;
}

#endif
