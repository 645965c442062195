/* SPDX-License-Identifier: MIT
 *
 * outlet: a bounded FIFO of events, progress and failures for the watchers of one reader. A reader is a stream, or a
 * watch in process.
 *
 * The bound is in bytes. Consecutive items with the same batch, for several watchers, count its bytes once. A full
 * outlet refuses an item that is offered. A watcher whose batch was refused waits in the outlet's list of blocked
 * watchers until there is room for the batch. The failure of a watcher is queued once, and is never refused for its
 * size. An empty outlet takes any batch, however large. So an outlet with blocked watchers is never empty: its reader
 * will take an item, which lets the blocked watchers resume.
 */
#ifndef KW_WATCH_OUTLET_H
#define KW_WATCH_OUTLET_H

#include "base/account.h"
#include "base/map.h"
#include "watch/batch.h"
#include "watch/ready.h"
#include "watch/watcher.h"

#define KW_DEFAULT_OUTLET_BYTES (1 << 20)
#define KW_OUTLET_ITEM_BYTES 64 /* charge of an item, besides its records */

typedef enum kw_item_kind {
  KW_ITEM_EVENTS,
  KW_ITEM_PROGRESS,  /* all events up to and including `revision` were delivered */
  KW_ITEM_COMPACTED, /* the watcher has failed: history before `revision` is gone */
  KW_ITEM_CORRUPT    /* the watcher has failed: a record that it needs is damaged */
} kw_item_kind;

typedef struct kw_item {
  kw_item_kind kind;
  kw_watcher *watcher; /* NULL: progress of the whole outlet */
  kw_batch *batch;     /* of EVENTS: a reference, which passes to the item's taker; else NULL */
  uint32_t from;       /* of EVENTS: the first event of the batch that is meant for the watcher */
  uint32_t n;          /* events that are meant for the watcher */
  int64_t revision;    /* of EVENTS: that of the last event; of CORRUPT: 0 */
  size_t charge;       /* set by the outlet */
} kw_item;

typedef struct kw_hub kw_hub;

/* What the outlets of a hub have together. Events are counted once for each watcher. */
typedef struct kw_outlet_totals {
  uint64_t added;   /* events that were queued since the hub was made, */
  uint64_t removed; /* and those of them that are no longer queued, */
  uint64_t dropped; /* and those of these that no reader has taken */
  size_t bytes;     /* charges of all items for their batches */
} kw_outlet_totals;

struct kw_outlet {
  kw_hub *hub;                          /* NULL: closed or abandoned */
  kw_outlet_totals *totals;             /* of the hub */
  kw_outlet *next;                      /* in the hub's list of open, or of abandoned outlets */
  kw_outlet **prev;                     /* the pointer there that points to this outlet */
  void (*on_closed)(kw_outlet *outlet); /* see kw_outlet_abandon */
  size_t cancelled_to;                  /* of an abandoned outlet: position in its ids */

  kw_item *items; /* a ring buffer */
  size_t first;   /* position of the oldest item */
  size_t n;
  size_t cap;
  size_t bytes; /* charges of all items */
  size_t max_bytes;
  size_t progress_all;  /* number of items that are progress of the whole outlet */
  size_t watcher_bytes; /* charges of all watchers */
  kw_account *account;  /* charged for watchers and items, not for the store's records; or NULL */

  bool with_ids;
  kw_watcher *only; /* the only watcher, without ids; or NULL */
  kw_map ids;       /* watchers by id, with ids */
  int64_t next_id;
  kw_watcher_list blocked;
  size_t n_synced; /* synced watchers */
  kw_link early;   /* watchers that begin later, and some that have begun since */

  kw_ready *ready;        /* the owner's ready list */
  bool is_armed;          /* the next item puts the outlet into the ready list */
  bool is_ready;          /* in the ready list */
  kw_outlet *next_ready;  /* in the ready list */
  kw_outlet **prev_ready; /* the pointer there that points to this outlet */
  uint64_t tag;           /* for the owner's use */
};

/* True until the outlet is closed or abandoned. */
static inline bool kw_outlet_is_open(const kw_outlet *outlet) {
  return outlet->hub != NULL;
}

/* Offers an item. If it is taken, the reference to its batch passes to the outlet; the caller then calls
 * kw_ready_add. Returns false, with nothing taken, if the outlet is full, its account gets no more memory, or memory is
 * short. Then the `needs` of the item's watcher, if there is one, is set. An empty outlet refuses only for lack of
 * memory. */
bool kw_outlet_offer(kw_outlet *outlet, const kw_item *item);

/* Adds an item that must not be refused for its size. The reference to its batch passes to the outlet. Returns false,
 * with nothing taken, only if memory is short. */
bool kw_outlet_push(kw_outlet *outlet, const kw_item *item);

/* Takes the oldest item, with its reference to the batch. Returns false if the outlet is empty. Does not unblock
 * watchers: readers call kw_outlet_take instead. */
bool kw_outlet_pop(kw_outlet *outlet, kw_item *item);

/* Returns the oldest item, which stays in the outlet; or NULL. Valid until the outlet changes. */
const kw_item *kw_outlet_first(const kw_outlet *outlet);

/* Returns the next watcher of the outlet, in no particular order, or NULL at the end. Start with *at = 0. If a watcher
 * is cancelled in between, the iteration may miss another one. */
kw_watcher *kw_outlet_next_watcher(const kw_outlet *outlet, size_t *at);

/* Drops all queued items of a watcher. The caller then calls kw_watcher_unblock. */
void kw_outlet_forget(kw_outlet *outlet, kw_watcher *watcher);

/* Drops the queued events and progress of a watcher, but not its failure. The caller then calls kw_watcher_unblock. */
void kw_outlet_forget_news(kw_outlet *outlet, kw_watcher *watcher);

/* Drops queued progress of the whole outlet. The caller then calls kw_watcher_unblock. */
void kw_outlet_forget_progress_all(kw_outlet *outlet);

/* Drops all items, and frees the ring buffer. */
void kw_outlet_drop_items(kw_outlet *outlet);

/* True if there is room for a blocked watcher, besides `promised` bytes for watchers that resume before it. Always true
 * of an empty outlet. Any other outlet has to be half empty, so that a reader that takes item by item does not unblock
 * a watcher for each item. */
bool kw_outlet_has_room(const kw_outlet *outlet, const kw_watcher *watcher, size_t promised);

#endif
