/* SPDX-License-Identifier: MIT
 *
 * feed: moves data from the upstream server into a replica: the state of a range, page by page, and then the events of
 * a subscription. Nothing of this passes through Lua.
 *
 * A kw_feed connects a subscription with a replica. The server's events then go to the replica while the bytes are
 * received, and the owner of the subscription is notified only if it waits for them.
 */
#ifndef KW_RPC_FEED_H
#define KW_RPC_FEED_H

#include "codec/event.h"
#include "rpc/subscription.h"
#include "store/replica.h"

/* {====== The state ====== */

/* The copy of an encoded RangeResponse. */
typedef struct kw_feed_page kw_feed_page;

/* The kvs of a range at one revision, in the order of keys. All zero: no page has arrived. */
typedef struct kw_feed_state {
  kw_range range;
  int64_t revision; /* of all pages */
  bool has_more;    /* the last page was not the last one of the range */
  kw_kv *kvs;       /* their slices are those of the pages */
  size_t n;
  size_t cap;
  kw_feed_page *pages;   /* the last one first */
  kw_replica_fill *fill; /* that has not used all of the state yet, or NULL */
} kw_feed_state;

/* Adds a copy of an encoded RangeResponse. One that is a part of a range stream has no header, and more follows it.
 * Returns KW_OK; KW_ERR_MALFORMED_ANSWER if the page cannot follow those before; or KW_ERR_NO_MEMORY: both leave the
 * state unchanged. */
int kw_feed_state_add(kw_feed_state *state, kw_slice answer, bool is_part);

/* Returns the last key. The next page begins right behind it. Empty if there is none. */
kw_slice kw_feed_state_last_key(const kw_feed_state *state);

/* Loads or merges the contents of a replica, within the work of a turn. Returns what the function of
 * store/replica.h returns; or KW_UNFINISHED: then another call with the same arguments continues, as long as no page
 * has been added. */
int kw_feed_state_use(kw_feed_state *state, kw_store *replica, kw_replica_how how);

void kw_feed_state_drop(kw_feed_state *state);

/* }====== */

/* {====== Events ====== */

typedef struct kw_feed_moved {
  size_t events;  /* that the replica did not have */
  size_t answers; /* of the server, with events or progress */
} kw_feed_moved;

/* Moves the notices of a subscription to the replica: events and progress, in order. Stops after about KW_FEED_BYTES
 * of them, and at a failure, which stays in the queue. Returns KW_OK; KW_ERR_NO_MEMORY; or KW_ERR_MALFORMED_ANSWER,
 * if the server has sent something impossible: earlier notices stay moved, the others stay in the queue. *moved
 * counts the moved ones, also after an error. */
int kw_feed_move(kw_store *replica, kw_subscription *sub, kw_feed_moved *moved);

#define KW_FEED_BYTES (1024 * 1024)

/* True if kw_feed_move would move something. */
bool kw_feed_has_more(const kw_subscription *sub);

/* }====== */

/* {====== Feeding without calls from Lua ====== */

/* Functions of the owner of a replica. They must not call Lua. */
typedef struct kw_feed_hooks {
  bool (*begin)(void *ctx); /* called before the replica is changed; false: it must not be now */
  bool (*end)(void *ctx);   /* called after that; true: the change is of interest */
  void *ctx;
} kw_feed_hooks;

struct kw_feed {
  kw_store *replica;
  kw_subscription *sub; /* NULL: none is joined */
  kw_feed_hooks hooks;
  bool is_moving;
};

/* Joins a subscription with a replica. What was joined with either before is parted. Both have to stay until
 * kw_feed_part. */
void kw_feed_join(kw_feed *feed, kw_store *replica, kw_subscription *sub,
                  const kw_feed_hooks *hooks);

/* Parts the subscription from the replica. Does nothing if none is joined. */
void kw_feed_part(kw_feed *feed);

/* A whole WatchResponse with events. */
typedef struct kw_feed_answer {
  kw_slice bytes;
  const kw_event_fields *only; /* its only event; NULL: it has several */
  int64_t last;                /* revision of the last event */
} kw_feed_answer;

/* Moves an answer to the replica, without the queue of the subscription. Returns false if the answer has to be
 * queued: there are others before it, the replica must not be changed now, or an error has come up, which
 * kw_feed_move finds again. *is_news is set if the owner has to be notified. */
bool kw_feed_hear(kw_feed *feed, const kw_feed_answer *answer, int64_t now, bool *is_news);

/* Moves what is in the queue, as kw_feed_move. Returns true if the owner has to be notified: of the change, or that
 * the queue is not empty. */
bool kw_feed_pull(kw_feed *feed, int64_t now);

/* }====== */

#endif
