/* SPDX-License-Identifier: MIT
 *
 * answer: what has to be known of answers, read out of messages without decoding them.
 */
#ifndef BENCH_ANSWER_H
#define BENCH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The revision in the header of a whole message, or 0. */
int64_t answer_revision(const uint8_t *message, size_t len);

/* Whether the compares of a transaction held, by its whole message. */
bool answer_has_succeeded(const uint8_t *message, size_t len);

/* Goes through the bytes of a watch stream as they come, and keeps none of them. All zero between two messages. */
typedef struct event_reader {
  uint32_t left;   /* of the message */
  uint32_t skip;   /* of the field */
  uint64_t number; /* as far as it was read */
  uint8_t shift;
  uint8_t n_prefix;
  uint8_t state;
  uint32_t field;
  uint32_t n_events;
  bool is_created;
  bool is_canceled;
} event_reader;

typedef struct watch_counts {
  uint64_t n_created;  /* watchers */
  uint64_t n_messages; /* with events */
  uint64_t n_events;
} watch_counts;

/* Adds what is in messages that become complete. A watcher that was canceled ends the program. */
void event_reader_feed(event_reader *r, const uint8_t *at, size_t len, watch_counts *counts);

#endif
