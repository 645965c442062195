/* SPDX-License-Identifier: MIT
 *
 * watches: the watches of a client, and checks that hold for each of them, whatever the server sends:
 *
 *   events     their revisions rise from one answer to the next; none comes twice, or after progress that covers it
 *   next       never falls, unless the server is not believed; and is never above what was delivered
 *   failure    nothing is delivered after it
 *   counters   match what waits; incomplete fragments stay within their bound
 */
#ifndef KW_FUZZ_WATCHES_H
#define KW_FUZZ_WATCHES_H

#include "rpc/watch_call.h"
#include "script.h"

#define MAX_WATCHES 8
#define MAX_TORN 8000 /* bytes of incomplete fragments */

typedef struct watched {
  kw_subscription sub;
  bool is_open;
  bool has_failed; /* a failure was delivered */
  int64_t next;    /* of the subscription, at the last check, as far as the server is believed */
  int64_t begin;   /* first revision; 0: not known yet */
  int64_t told;    /* highest revision of a delivered event */
  int64_t covered; /* highest revision of delivered progress */
  int64_t passed;  /* everything before this revision was delivered, since a part of it has come */
  bool has_forgotten; /* memory was short: progress may be missing */
} watched;

typedef struct watches {
  watched list[MAX_WATCHES];
  uint64_t n_opened; /* checks that found a watch open */
  uint64_t n_events; /* notices of events that were taken */
} watches;

/* Does a step of a script. Returns false if the letter is none of these.
 *   n watch call start how   attaches the watch to a call; makes it if need be     d watch   detaches it
 *   k watch n                takes n answers                                       v watch   closes it
 *   a watch how              arms, follows, believes, revives or fails it */
bool watches_do(watches *w, kw_client *client, char letter, script_line *line);

/* Takes the list of watches that are ready. */
void watches_hear(watches *w, kw_client *client);

/* Runs the checks. `is_starved`: an allocation of this step was made to fail. */
void watches_check(watches *w, bool is_starved);

/* Closes every second watch, or the other ones. */
void watches_drop(watches *w, int which);

#endif
