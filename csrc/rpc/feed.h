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
  bool has_more;    /* the range has keys after those of the pages */
  kw_kv *kvs;       /* their slices are those of the pages */
  size_t n;
  size_t cap;
  kw_feed_page *pages;   /* the last one first */
  kw_replica_fill *fill; /* unfinished kw_feed_state_use, or NULL */
} kw_feed_state;

/* Adds a copy of an encoded RangeResponse. is_part: it is a part of a range stream, without a header, and more follows.
 * Returns KW_OK; KW_ERR_MALFORMED_ANSWER if the page is malformed or cannot follow the earlier pages; or
 * KW_ERR_NO_MEMORY. An error leaves the pages unchanged. An unfinished kw_feed_state_use ends in any case. */
int kw_feed_state_add(kw_feed_state *state, kw_slice answer, bool is_part);

/* Returns the last key of the pages, after which the next page begins; or an empty slice if there is none. */
kw_slice kw_feed_state_last_key(const kw_feed_state *state);

/* Loads or merges the contents of a replica, within the work of a turn. Returns what the function of
 * store/replica.h returns; or KW_UNFINISHED: then another call with the same arguments continues, as long as no page
 * has been added. */
int kw_feed_state_use(kw_feed_state *state, kw_store *replica, kw_replica_how how);

/* Frees the pages, and ends an unfinished kw_feed_state_use. */
void kw_feed_state_drop(kw_feed_state *state);

/* }====== */

/* {====== Events ====== */

/* Result of kw_feed_move. */
typedef struct kw_feed_moved {
  size_t events;  /* number of events that the replica did not have */
  size_t answers; /* number of the server's answers with events or progress */
} kw_feed_moved;

/* Moves the notices of a subscription to the replica: events and progress, in order. Stops after about KW_FEED_BYTES,
 * and before a notice of failure, which stays in the queue. Returns KW_OK; KW_ERR_NO_MEMORY; or
 * KW_ERR_MALFORMED_ANSWER if the events are impossible. After an error the failed notice and the later ones stay in the
 * queue, and *moved counts what was moved before. */
int kw_feed_move(kw_store *replica, kw_subscription *sub, kw_feed_moved *moved);

#define KW_FEED_BYTES (1024 * 1024)

/* True if kw_feed_move would move something. */
bool kw_feed_has_more(const kw_subscription *sub);

/* }====== */

/* {====== Feeding without calls from Lua ====== */

/* Functions of the owner of a replica. They must not call Lua. */
typedef struct kw_feed_hooks {
  bool (*begin)(void *ctx); /* called before a change of the replica; false: no change now */
  bool (*end)(void *ctx);   /* called after the change; true: the owner has to be notified */
  void *ctx;
} kw_feed_hooks;

struct kw_feed {
  kw_store *replica;
  kw_subscription *sub; /* NULL: the feed is not joined */
  kw_feed_hooks hooks;
  bool is_moving; /* between the hooks begin and end */
};

/* Joins a subscription with a replica. An earlier join of this feed, or of this subscription, ends. Subscription and
 * replica must live until kw_feed_part. */
void kw_feed_join(kw_feed *feed, kw_store *replica, kw_subscription *sub,
                  const kw_feed_hooks *hooks);

/* Ends the join of a feed. Does nothing if it is not joined. */
void kw_feed_part(kw_feed *feed);

/* A whole WatchResponse with events. */
typedef struct kw_feed_answer {
  kw_slice bytes;
  const kw_event_fields *only; /* its only event; NULL: it has several */
  int64_t last;                /* revision of the last event */
} kw_feed_answer;

/* Moves an answer to the replica, without the queue of the subscription. Returns false if the answer has to be queued:
 * the queue is not empty, the subscription is suspect, the replica must not be changed now, or an error has occurred,
 * which kw_feed_move will find again. *is_news, false before, becomes true if the owner has to be notified. */
bool kw_feed_receive(kw_feed *feed, const kw_feed_answer *answer, int64_t now, bool *is_news);

/* Moves notices from the queue, like kw_feed_move. Returns true if the owner has to be notified: of the change, of an
 * error, or that the queue is not empty. */
bool kw_feed_pull(kw_feed *feed, int64_t now);

/* }====== */

#endif
