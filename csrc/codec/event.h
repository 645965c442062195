/* SPDX-License-Identifier: MIT
 *
 * event: encodes a kw_event as mvccpb.Event, in the field of a WatchResponse. Records are encoded KeyValues, and are
 * copied as they are.
 *
 *   put      the record is the KeyValue of the event
 *   delete   the record is a KeyValue with the key alone; its mod_revision is added
 */
#ifndef KW_CODEC_EVENT_H
#define KW_CODEC_EVENT_H

#include "model/event.h"

/* Returns the size of the encoded event, with the tag and the length of its field. */
size_t kw_event_size(const kw_event *event);

/* Encodes an event at `to`, which has room for kw_event_size bytes. Returns the end of what was written. */
uint8_t *kw_event_put(const kw_event *event, uint8_t *to);

#endif
