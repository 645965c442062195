/* SPDX-License-Identifier: MIT
 *
 * scroll: reads the events of a long batch (watch/batch.h) from the log, for one watcher, as many at a time as its
 * reader can take.
 *
 * The history may change before the end: a compaction removes the records, or a replica is given another history.
 * Then the scroll cannot continue. A reader that has taken nothing of the batch lets the watcher lag, see
 * kw_hub_deliver_again; any other reader fails the watcher, or its stream.
 */
#ifndef KW_WATCH_SCROLL_H
#define KW_WATCH_SCROLL_H

#include "store/work.h"
#include "watch/hub.h"

/* All zero, there is no scroll. */
typedef struct kw_scroll {
  const kw_hub *hub;
  const kw_watcher *watcher; /* borrowed: must outlive the scroll */
  kw_batch *batch;           /* a reference; NULL: there is no scroll */
  kw_log_cursor cursor;      /* valid from kw_scroll_seek to the next change of the store */
  kw_revision next;          /* revision of the next event, or less */
  kw_blob *record;           /* of the event that was returned last; or NULL */
  size_t left;               /* number of events that were not returned yet */
} kw_scroll;

/* Opens a scroll over the long batch of an item, and takes a reference to the batch. */
void kw_scroll_open(kw_scroll *scroll, const kw_hub *hub, const kw_item *item);

/* Prepares for kw_scroll_next, after the store may have changed. Returns false if the history has changed, so that
 * the scroll cannot continue. */
bool kw_scroll_seek(kw_scroll *scroll);

/* Returns the next event; there must be one left. Its records are valid until the next call of kw_scroll_next or
 * kw_scroll_seek, or the next change of the store. Returns KW_OK; KW_UNFINISHED if no work is left; KW_ERR_NO_MEMORY;
 * or KW_ERR_CORRUPT if a record cannot be read. After an error the caller first calls kw_scroll_seek: the same event is
 * then next. */
int kw_scroll_next(kw_scroll *scroll, kw_work *work, kw_event *event);

/* Continues the search for the next event, after kw_scroll_next has run out of work. Returns false if the work runs
 * out again. Returns true if the event was found, or if the scroll cannot continue. The caller then calls
 * kw_scroll_seek. */
bool kw_scroll_skip(kw_scroll *scroll, kw_work *work);

/* Ends a scroll, if there is one. */
void kw_scroll_close(kw_scroll *scroll);

#endif
