/* SPDX-License-Identifier: MIT
 *
 * event: one change of one key, as a watcher receives it.
 *
 * An event borrows its blobs. Whoever keeps an event retains both.
 */
#ifndef KW_MODEL_EVENT_H
#define KW_MODEL_EVENT_H

#include "base/blob.h"

typedef struct kw_event {
  int64_t revision; /* of the change */
  bool is_delete;
  kw_blob *record; /* of a put, the KeyValue; of a delete, a KeyValue with only the key */
  kw_blob *prev;   /* KeyValue before the change; NULL: none, not wanted, or not known */
} kw_event;

#endif
