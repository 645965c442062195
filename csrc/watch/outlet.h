/* SPDX-License-Identifier: MIT
 *
 * outlet: where what watchers are told waits for whoever reads it: one stream, with the watchers that share it.
 *
 * A queue bounded in bytes, where a batch counts once for all who are told it together. Offering is a try: a full
 * outlet refuses, and the watcher waits in its list of blocked ones until there is room for what was refused. What is
 * said once and for a watcher alone (its failure) is never refused. An empty outlet takes any batch, however large.
 * So an outlet with blocked watchers is never empty: what it holds will be taken, and that lets them go on.
 */
#ifndef KW_WATCH_OUTLET_H
#define KW_WATCH_OUTLET_H

#include "base/account.h"
#include "base/map.h"
#include "watch/batch.h"
#include "watch/watcher.h"

#define KW_DEFAULT_OUTLET_BYTES (1 << 20)
#define KW_OUTLET_ITEM_BYTES 64 /* what an item is charged beside its records */

typedef enum kw_item_kind {
  KW_ITEM_EVENTS,
  KW_ITEM_PROGRESS,  /* all before `revision`, and itself, has been told */
  KW_ITEM_COMPACTED, /* the watcher has failed: history up to `revision` is gone */
  KW_ITEM_CORRUPT    /* the watcher has failed: a record that it needs is damaged */
} kw_item_kind;

typedef struct kw_item {
  kw_item_kind kind;
  kw_watcher *watcher; /* NULL: progress of the whole outlet */
  kw_batch *batch;     /* of EVENTS; who takes the item takes the reference */
  uint32_t from;       /* the first event of the batch that is meant */
  int64_t revision;
  size_t charge; /* the outlet's own */
} kw_item;

typedef struct kw_hub kw_hub;

/* Those outlets of an owner that were armed and have got something, the oldest first. All zero, it is empty. */
typedef struct kw_ready {
  kw_outlet *first;
  kw_outlet **last; /* where the next one goes; NULL while the list was never used */
} kw_ready;

struct kw_outlet {
  kw_hub *hub; /* NULL once the hub is gone: nothing will come any more */
  kw_outlet *next;
  kw_outlet **prev; /* among the outlets of the hub */

  kw_item *items; /* a ring */
  size_t first;
  size_t n;
  size_t cap;
  size_t bytes;
  size_t max_bytes;
  size_t progress_all; /* items of progress of the whole outlet */
  kw_account *account; /* charged for watchers and items, not for the store's records; or NULL */

  bool with_ids;
  kw_watcher *only; /* its watcher, without ids */
  kw_map ids;       /* its watchers, with ids */
  int64_t next_id;
  kw_watcher_list blocked;

  kw_ready *ready; /* where its owner looks */
  bool is_armed;   /* to be put there when something comes */
  bool is_ready;   /* it stands there */
  kw_outlet *next_ready;
  kw_outlet **prev_ready;
  uint64_t tag; /* the owner's own */
};

/* Puts an item in, and takes the reference to its batch. False, with nothing taken, if the item is refused: the item's
 * watcher, if it has one, then knows how much room it needs. */
bool kw_outlet_offer(kw_outlet *outlet, const kw_item *item);

/* The same for what may not be refused, but for want of memory. */
bool kw_outlet_push(kw_outlet *outlet, const kw_item *item);

/* Takes the oldest item; false if there is none. */
bool kw_outlet_pop(kw_outlet *outlet, kw_item *item);

/* The oldest item, which stays, or NULL. */
const kw_item *kw_outlet_first(const kw_outlet *outlet);

/* Throws away what waits for a watcher; or progress of the whole outlet. */
void kw_outlet_forget(kw_outlet *outlet, kw_watcher *watcher);
void kw_outlet_forget_progress_all(kw_outlet *outlet);

void kw_outlet_drop_items(kw_outlet *outlet);

/* Whether a blocked watcher may go on, where others that need `promised` bytes already do. In an empty outlet: always.
 * Else the outlet has to be half empty, so that a reader who takes item by item does not wake watchers for each. */
bool kw_outlet_has_room(const kw_outlet *outlet, const kw_watcher *watcher, size_t promised);

#ifdef KW_PROBE
/* Whether the counts of an outlet are those of its items; else the text of one that is not. */
const char *kw_outlet_check(const kw_outlet *outlet);
#endif

#endif
