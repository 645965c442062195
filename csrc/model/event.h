/* SPDX-License-Identifier: MIT
 *
 * event: one change of one key, as a watcher receives it.
 *
 * An event borrows its blobs. Code that keeps an event retains both.
 */
#ifndef KW_MODEL_EVENT_H
#define KW_MODEL_EVENT_H

#include "base/blob.h"

typedef struct kw_event {
  int64_t revision; /* of the change */
  bool is_delete;
  kw_blob *record; /* of a put, the KeyValue; of a delete, a KeyValue with only the key */
  /* KeyValue before the change; NULL: there was none, or it was not requested, or is not known. */
  kw_blob *prev;
} kw_event;

#endif
