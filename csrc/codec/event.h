/* SPDX-License-Identifier: MIT
 *
 * event: mvccpb.Event, in the field of a WatchResponse. Records are encoded KeyValues, and are copied as they are.
 *
 *   put      the record is the KeyValue of the event
 *   delete   the record is a KeyValue with only a key; its mod_revision is added
 */
#ifndef KW_CODEC_EVENT_H
#define KW_CODEC_EVENT_H

#include "model/event.h"
#include "model/kv.h"

/* Returns the size of the encoded event, with the tag and the length of its field. */
size_t kw_event_size(const kw_event *event);

/* Returns the size that an encoded event without `prev` would have with one of `prev_len` bytes. */
size_t kw_event_size_with(const kw_event *event, size_t prev_len);

/* Encodes an event at `to`, a buffer of kw_event_size bytes. Returns the end of the written bytes. */
uint8_t *kw_event_put(const kw_event *event, uint8_t *to);

#define KW_WATCH_RESPONSE_EVENTS 11 /* number of the field of a WatchResponse that has an event */

/* A received event. Its slices point into the encoded event. */
typedef struct kw_event_fields {
  bool is_delete;
  bool has_prev;
  kw_kv kv; /* all zero if there is none */
  kw_kv prev;
} kw_event_fields;

/* Decodes an event. Returns false if it is malformed. */
bool kw_event_decode(kw_slice bytes, kw_event_fields *event);

#endif
