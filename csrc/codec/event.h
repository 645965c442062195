/* SPDX-License-Identifier: MIT
 *
 * event: encodes and decodes mvccpb.Event, an item of the field `events` of a WatchResponse. The records of an event
 * are encoded KeyValues, which are copied unchanged.
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

/* Returns the size that an event without `prev` would have with a `prev` of `prev_len` bytes. */
size_t kw_event_size_with(const kw_event *event, size_t prev_len);

/* Encodes an event at `to`, a buffer of kw_event_size bytes. Returns the end of the written bytes. */
uint8_t *kw_event_put(const kw_event *event, uint8_t *to);

#define KW_WATCH_RESPONSE_EVENTS 11 /* number of the field `events` of a WatchResponse */

/* A received event. Its slices point into the encoded event. */
typedef struct kw_event_fields {
  bool is_delete;
  bool has_prev;
  kw_kv kv;   /* all zero if the event has none */
  kw_kv prev; /* all zero unless has_prev */
} kw_event_fields;

/* Decodes an event. Returns false if it is malformed; *event is then partly filled. */
bool kw_event_decode(kw_slice bytes, kw_event_fields *event);

#endif
