/* SPDX-License-Identifier: MIT
 *
 * subscription: a watch of a client, over whichever connections it takes. It owns its revision: `next` is the first one
 * that it has not been told of, so whoever attaches it anew goes on where it was.
 *
 *            attach            created
 *   IDLE ------------> CREATING ------> OPEN           FAILED: never again
 *     ^--------------------+--------------+
 *        the call has ended, or the queue is full
 *
 * Large answers come in pieces, which may end inside of a revision: all before that revision is told at once, and
 * itself when it is complete.
 *
 * What it was told waits in a queue, as the answers came, until it is taken; bounded in bytes and events. If it is full
 * and the watch is alone on its call, the call is held back by flow control. If others share the call, the watch leaves
 * it, so that they need not wait: it is lagging, and to be attached to a call of its own when the queue has room again.
 *
 * It is ready, in the list of the connection where that shows, if it was armed and something can be taken; or if it
 * needs somebody to look at its state.
 */
#ifndef KW_RPC_SUBSCRIPTION_H
#define KW_RPC_SUBSCRIPTION_H

#include "base/blob.h"
#include "base/link.h"
#include "model/range.h"

#define KW_SUBSCRIPTION_EVENTS 65536 /* that may wait */

typedef struct kw_watch_call kw_watch_call;

typedef enum kw_subscription_state {
  KW_SUBSCRIPTION_IDLE,
  KW_SUBSCRIPTION_CREATING,
  KW_SUBSCRIPTION_OPEN,
  KW_SUBSCRIPTION_FAILED
} kw_subscription_state;

typedef enum kw_news_kind {
  KW_NEWS_EVENTS,
  KW_NEWS_PROGRESS,  /* all up to `revision` has been told */
  KW_NEWS_COMPACTED, /* the watch has failed: history up to `revision` is gone */
  KW_NEWS_FAILED     /* the watch has failed, for the reason in `bytes`, or an error of our own */
} kw_news_kind;

typedef struct kw_news {
  kw_news_kind kind;
  bool has_more;    /* of EVENTS: what follows belongs to the same answer */
  int error;        /* of FAILED, if there are no bytes */
  int64_t revision; /* of EVENTS: older ones have been told before, and are to be left out */
  int64_t
      until; /* the same: these and later ones follow, when all of that revision has come; 0: none do */
  uint32_t n;     /* of EVENTS: how many there are */
  kw_blob *bytes; /* of EVENTS: a WatchResponse */
  kw_link link;
} kw_news;

typedef struct kw_subscription {
  kw_blob *keys; /* its range: the key, then the end */
  uint32_t key_len;
  bool prev_kv : 1;
  bool no_put : 1;
  bool no_delete : 1;
  bool progress : 1; /* its reader is told of progress, also if that says nothing new */
  bool is_armed : 1;
  bool is_followed : 1; /* somebody wants to know how far it has come */
  bool is_lagging : 1;  /* it left a call because nobody reads it */
  bool
      is_suspect : 1; /* the server knows less than the watch has seen: nothing is given until that is settled */
  bool was_created : 1; /* by any call */
  bool has_cluster : 1;
  uint8_t state; /* kw_subscription_state */

  int64_t next;    /* where it goes on; 0: from now on */
  int64_t seen;    /* the highest revision that a server told it of */
  int64_t server;  /* the revision of the server that it was created on last */
  int64_t cluster; /* whose watch it is */

  kw_watch_call *call;       /* or NULL */
  int64_t id;                /* on it, once it is open */
  size_t stale;              /* answers about progress that may come yet and do not know of it */
  struct kw_creation *asked; /* until it is created */

  kw_link news;      /* oldest first */
  size_t bytes;      /* that wait */
  size_t events;     /* the same */
  size_t pieces;     /* the same: of answers */
  size_t unfinished; /* pieces at the end of it, of a revision that is not complete */
  size_t torn;       /* what they are charged */
  size_t max_bytes;

  size_t sure_pieces; /* while it is suspect: what there was before, */
  int64_t sure_next;  /* and where it was */
  int64_t sure_seen;

  kw_link ready;
  uint64_t tag; /* its owner's own */
} kw_subscription;

/* False if memory is short. Its range is copied. */
bool kw_subscription_init(kw_subscription *sub, const kw_range *range, size_t max_bytes);

/* Leaves its call, and forgets all. */
void kw_subscription_drop(kw_subscription *sub);

kw_range kw_subscription_range(const kw_subscription *sub);

/* What is to be taken next, or NULL; an answer that is not complete is not. And taking all of that answer away. */
const kw_news *kw_subscription_first(const kw_subscription *sub);
void kw_subscription_skip(kw_subscription *sub);

/* A piece of an answer with `n` events, the last of revision `last`. False if memory is short. */
bool kw_subscription_push(kw_subscription *sub, kw_slice response, size_t n, int64_t last,
                          bool has_more);

/* All up to a revision has been told. Returns whether that changed anything for its reader, or for who follows it. */
bool kw_subscription_advance(kw_subscription *sub, int64_t revision);

/* The same, as the server says it from time to time: a reader that wants progress is told even if nothing is new. */
bool kw_subscription_tick(kw_subscription *sub, int64_t revision);

/* It has failed: by compaction; by a reason in words; or by an error. Without memory it fails all the same. */
void kw_subscription_fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason,
                          int error);

/* The server knows less than the watch has seen; what it says is not given until it is believed, or is retracted. */
void kw_subscription_doubt(kw_subscription *sub);
void kw_subscription_believe(kw_subscription *sub);
void kw_subscription_retract(kw_subscription *sub);

/* What the server said when it refused it, if that was not taken yet, or NULL; and taking that back: it is idle. */
kw_blob *kw_subscription_refusal(const kw_subscription *sub);
void kw_subscription_revive(kw_subscription *sub);

/* What is not complete will never be. */
void kw_subscription_forget_torn(kw_subscription *sub);

static inline bool kw_subscription_is_full(const kw_subscription *sub) {
  return sub->bytes > sub->max_bytes || sub->events > KW_SUBSCRIPTION_EVENTS;
}

/* Whether it may go on; also if all that waits is of a revision that is not complete, since nobody could read it. */
static inline bool kw_subscription_has_room(const kw_subscription *sub) {
  bool is_low = sub->bytes <= sub->max_bytes / 2 && sub->events <= KW_SUBSCRIPTION_EVENTS / 2;
  return is_low || sub->pieces == sub->unfinished;
}

#endif
