/* SPDX-License-Identifier: MIT
 *
 * event: mvccpb.Event as a field of a WatchResponse, spliced from the records that there are.
 *
 *   put      its record is the KeyValue
 *   delete   its record has the key alone, to which the revision is added
 */
#ifndef KW_CODEC_EVENT_H
#define KW_CODEC_EVENT_H

#include "model/event.h"

/* With the tag and the length of the field. */
size_t kw_event_size(const kw_event *event);
uint8_t *kw_event_put(const kw_event *event, uint8_t *to);

#endif
