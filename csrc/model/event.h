/* SPDX-License-Identifier: MIT
 *
 * event: one change of one key, as a watcher receives it.
 */
#ifndef KW_MODEL_EVENT_H
#define KW_MODEL_EVENT_H

#include "base/blob.h"

typedef struct kw_event {
  int64_t revision;
  bool is_delete;
  kw_blob *record; /* of a put, the KeyValue; of a delete, a KeyValue with the key alone */
  kw_blob *prev;   /* KeyValue of the key before the change, or NULL */
} kw_event;

#endif
