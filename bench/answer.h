/* SPDX-License-Identifier: MIT
 *
 * answer: reads a few fields of answers without decoding the messages.
 */
#ifndef BENCH_ANSWER_H
#define BENCH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the revision in the header of a complete message, or 0. */
int64_t answer_revision(const uint8_t *message, size_t len);

/* True if the complete answer to a transaction says that its compares held. */
bool answer_has_succeeded(const uint8_t *message, size_t len);

/* Parser for the bytes of a watch stream. It keeps no bytes, and is all zero between two messages. */
typedef struct event_reader {
  uint32_t left;   /* bytes of the message still to come */
  uint32_t skip;   /* bytes of the field to skip */
  uint64_t number; /* the part of the varint that was read */
  uint8_t shift;
  uint8_t n_prefix;
  uint8_t state;
  uint32_t field;
  uint32_t n_events;
  bool is_created;
  bool is_canceled;
} event_reader;

typedef struct watch_counts {
  uint64_t n_created;  /* created watchers */
  uint64_t n_messages; /* messages with events */
  uint64_t n_events;
} watch_counts;

/* Reads bytes, and adds the events and watchers of messages to the sums. A canceled watcher ends the program. */
void event_reader_feed(event_reader *r, const uint8_t *at, size_t len, watch_counts *counts);

#endif
