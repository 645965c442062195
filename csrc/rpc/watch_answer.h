/* SPDX-License-Identifier: MIT
 *
 * watch_answer: decodes a WatchResponse for a client. For rpc/watch_call.c only.
 *
 * The events are checked and counted, and stay in the bytes of the answer.
 */
#ifndef KW_RPC_WATCH_ANSWER_H
#define KW_RPC_WATCH_ANSWER_H

#include "codec/event.h"
#include "codec/messages.h"

typedef struct kw_watch_answer {
  kw_header header;
  kw_watch_response fields; /* without the events; its slices point into the answer */
  size_t n_events;
  kw_event_fields event; /* the last event; its slices point into the answer */
  int64_t last_revision; /* of the last event; without events, the `last` that was given */
} kw_watch_answer;

/* Reads an answer. An answer with an event before revision `last` is malformed. Returns false if the answer is
 * malformed, its events are not in order, or a revision is impossible. */
bool kw_watch_answer_read(kw_slice bytes, int64_t last, kw_watch_answer *answer);

#endif
