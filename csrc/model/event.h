/* SPDX-License-Identifier: MIT
 *
 * event: one change of one key, as a watcher is told of it.
 */
#ifndef KW_MODEL_EVENT_H
#define KW_MODEL_EVENT_H

#include "base/blob.h"

typedef struct kw_event {
  int64_t revision;
  bool is_delete;
  kw_blob *record; /* the KeyValue that was put; of a delete, one with the key alone */
  kw_blob *prev;   /* what the key was before, or NULL */
} kw_event;

#endif
