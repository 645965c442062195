/* SPDX-License-Identifier: MIT
 *
 * watches: those of a client, whatever its server says, and what holds of each of them:
 *
 *   events     rise, from one answer to the next, and none is given twice, or after progress that covers it
 *   next       never goes back, nor further than what was given
 *   a failure  is the last that is given
 *   counters   are those of what waits, and of pieces that are not complete within their bound
 */
#ifndef KW_FUZZ_WATCHES_H
#define KW_FUZZ_WATCHES_H

#include "rpc/watch_call.h"
#include "script.h"

#define MAX_WATCHES 8
#define MAX_TORN 8000 /* bytes of pieces */

typedef struct watched {
  kw_subscription sub;
  bool is_open;
  bool has_failed;    /* that was given */
  int64_t next;       /* where it was */
  int64_t begin;      /* where it began; 0: that is not known yet */
  int64_t told;       /* the highest revision of an event that was given */
  int64_t covered;    /* the same of progress */
  bool has_forgotten; /* memory was short: progress may not have been given */
} watched;

typedef struct watches {
  watched list[MAX_WATCHES];
} watches;

/* A step of a script:
 *   n watch call start how   it is attached, and made before if there is none     d watch   it leaves its call
 *   k watch n                so many answers are taken                            v watch   it is closed
 *   a watch how              it is armed, followed, accepted, or fails
 * False if the letter is none of these. */
bool watches_do(watches *w, kw_client *client, char letter, script_line *line);

/* Those that are ready are named. */
void watches_hear(watches *w, kw_client *client);

/* Checks what holds; `is_starved`: memory was made short. */
void watches_check(watches *w, bool is_starved);

/* Closes every second one, or the others. */
void watches_drop(watches *w, int which);

#endif
