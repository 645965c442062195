/* SPDX-License-Identifier: MIT
 *
 * subscription: a watch of a client. It outlives connections: `next` is the first revision that it has not received.
 * On each watch call that it is attached to, it continues from there.
 *
 *            attach            created
 *   IDLE ------------> CREATING ------> OPEN           FAILED: for good, unless kw_subscription_revive undoes it
 *     ^--------------------+--------------+
 *        the call has ended, or the queue is full
 *
 * Notices of the server wait in a queue until the reader takes them. The queue is bounded in bytes and in events. If it
 * is full and no other subscription shares the watch call, flow control pauses the call. If others share the call, the
 * subscription leaves it, so that they need not wait: it is then lagging, and has to be attached to a separate call
 * when its queue has room again.
 *
 * Large answers come in fragments, which may end inside a revision. Events before that revision can be taken at once,
 * those of the revision when it is complete.
 *
 * A subscription enters the list of ready watches of its connection when it is armed and a notice can be taken; when
 * its state has changed; and when its progress has changed, if announces_progress is set. A subscription with a feed
 * (rpc/feed.h) enters it when its state has changed, or when the feed has to notify the owner.
 */
#ifndef KW_RPC_SUBSCRIPTION_H
#define KW_RPC_SUBSCRIPTION_H

#include "base/blob.h"
#include "base/link.h"
#include "model/range.h"

#define KW_SUBSCRIPTION_EVENTS 65536 /* limit of events in the queue */

typedef struct kw_feed kw_feed;
typedef struct kw_watch_call kw_watch_call;

typedef enum kw_subscription_state {
  KW_SUBSCRIPTION_IDLE,
  KW_SUBSCRIPTION_CREATING,
  KW_SUBSCRIPTION_OPEN,
  KW_SUBSCRIPTION_FAILED
} kw_subscription_state;

typedef enum kw_notice_kind {
  KW_NOTICE_EVENTS,
  KW_NOTICE_PROGRESS,  /* every event up to `revision` has arrived */
  KW_NOTICE_COMPACTED, /* the watch has failed: history before `revision` is gone */
  KW_NOTICE_FAILED     /* the watch has failed with `error` */
} kw_notice_kind;

/* One entry of the queue: a fragment of an answer, progress, or a failure. */
typedef struct kw_notice {
  kw_notice_kind kind;
  bool has_more;    /* of EVENTS: the next notice belongs to the same answer */
  int error;        /* of FAILED: a KW_ERR_ code */
  int64_t revision; /* of EVENTS: older events have arrived before, and must be skipped */
  int64_t until;    /* of EVENTS: events from this revision on are repeated later; 0: none are */
  uint32_t n;       /* of EVENTS: number of events in `bytes` */
  kw_blob *bytes;   /* of EVENTS: a WatchResponse; of a failure: the server's reason, or NULL */
  kw_link link;
} kw_notice;

typedef struct kw_subscription {
  kw_blob *keys; /* its range: the key, then the end */
  uint32_t key_len;
  bool prev_kv : 1;
  bool no_put : 1;
  bool no_delete : 1;
  bool progress : 1; /* its reader wants all periodic progress, even if the revision is the same */
  bool is_armed : 1; /* becomes ready when a notice can be taken */
  bool announces_progress : 1; /* becomes ready when its progress changes */
  bool is_lagging : 1;         /* has left a call because its queue was full */
  bool is_suspect : 1;         /* see kw_subscription_suspect */
  bool has_changed : 1;        /* is ready because its state has changed; the owner clears this */
  bool was_created : 1;        /* at least once, on any call */
  bool has_cluster : 1;        /* `cluster` is known */
  /* Requests the last received revision again, and drops its events: a server sends no progress on a call before each
   * of its watches has reached its first revision, and so would send none for a watch that is up to date. */
  bool overlaps : 1;
  uint8_t state; /* kw_subscription_state */

  int64_t next; /* first revision not received; 0: the one after the server's, at creation */
  int64_t seen; /* highest revision that a server has sent */
  int64_t server_revision; /* revision of the server when it last created the watch */
  int64_t cluster;         /* id of the cluster that the watch belongs to */

  kw_watch_call *call;                  /* or NULL */
  void (*on_room)(kw_watch_call *call); /* resumes the call; set with `call` */
  kw_feed *feed;                        /* takes the server's notices directly; or NULL */
  int64_t id;                           /* watch id, once it is open */
  int64_t heard_at; /* when the server last reported that no event is missing; or 0 */
  size_t stale;     /* number of expected answers about progress that may not cover this watch */
  struct kw_creation *asked; /* its create request, until that is answered; or NULL */

  kw_link notices; /* kw_notice, oldest first */
  size_t bytes;    /* charge of all notices */
  size_t events;   /* number of events in all notices */
  size_t pieces;   /* number of notices */
  size_t
      unfinished; /* number of notices at the end of the queue, of a revision that is not complete */
  size_t torn;    /* charge of those */
  size_t max_bytes;

  size_t
      sure_pieces; /* while it is suspect: number of notices that it had before, less those taken since */
  int64_t sure_next; /* while it is suspect: `next` before */
  int64_t sure_seen; /* while it is suspect: `seen` before */

  kw_link ready; /* in the list of its connection */
  uint64_t tag;  /* for the owner's use */
} kw_subscription;

/* Makes an idle subscription. The range is copied. Returns false if memory is short; it may then be dropped, but need
 * not be. */
bool kw_subscription_init(kw_subscription *sub, const kw_range *range, size_t max_bytes);

/* Frees the memory of a subscription that has neither call nor feed, see kw_watch_call_drop. */
void kw_subscription_drop(kw_subscription *sub);

/* Returns the range, as slices of the subscription's own bytes. */
kw_range kw_subscription_range(const kw_subscription *sub);

/* Returns the notice to take next, or NULL. It stays in the queue, and is valid until it is dropped. Fragments of a
 * revision that is not complete cannot be taken, and nothing can while the subscription is suspect. */
const kw_notice *kw_subscription_first(const kw_subscription *sub);

/* Drops the notice that kw_subscription_first returns, and the rest of the same answer. May resume a paused call: then
 * waiting answers are delivered, which may end the call. */
void kw_subscription_skip(kw_subscription *sub);

/* Notes that all events up to revision `last` have arrived, after kw_feed_receive has taken them. */
void kw_subscription_note_received(kw_subscription *sub, int64_t last);

/* Queues a copy of an answer with `n` events, the last of revision `last`. has_more: the answer is a fragment, and
 * not the last one. Does nothing if all events are older than `next`, and no revision is incomplete. Returns false if
 * memory is short. */
bool kw_subscription_push(kw_subscription *sub, kw_slice response, size_t n, int64_t last,
                          bool has_more);

/* Notes that every event up to a revision has arrived, and queues progress, unless memory is short. Does nothing in the
 * middle of a revision. Returns true if `next` has moved. */
bool kw_subscription_advance(kw_subscription *sub, int64_t revision);

/* Does what kw_subscription_advance does, for progress of the whole call, and sets `heard_at`, unless the watch has
 * received later events, or a revision in part. Returns true if `next` has moved, or announces_progress is set. */
bool kw_subscription_confirm(kw_subscription *sub, int64_t revision, int64_t now);

/* Does what kw_subscription_advance does, for the server's periodic progress: a reader that wants progress gets it
 * even if nothing is new. Returns true if `next` has moved, or progress was queued. */
bool kw_subscription_tick(kw_subscription *sub, int64_t revision);

/* Fails a subscription, which must be off its call: by compaction, if compact_revision is above 0; else with an
 * error. `reason` is the server's reason in words, or empty; it is copied. Queues a notice; without memory the
 * subscription fails without a notice. Does nothing if it has failed before. */
void kw_subscription_fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason,
                          int error);

/* Makes a subscription suspect: the server's revision is lower than one that the watch has seen. Nothing can be taken
 * until kw_subscription_validate or kw_subscription_retract. */
void kw_subscription_suspect(kw_subscription *sub);

/* Ends the suspicion: the notices since then are valid. */
void kw_subscription_validate(kw_subscription *sub);

/* If the subscription is suspect, ends the suspicion, and drops the notices since then. kw_subscription_forget_torn has
 * to be called before. */
void kw_subscription_retract(kw_subscription *sub);

/* Returns the server's reason for refusing or canceling the watch, if that notice was not taken yet; or NULL. The
 * blob belongs to the notice. */
kw_blob *kw_subscription_refusal(const kw_subscription *sub);

/* Drops the notice that kw_subscription_refusal returns, and makes the subscription idle again. Does nothing if there
 * is none. */
void kw_subscription_revive(kw_subscription *sub);

/* Drops the fragments of a revision that is not complete: the rest will never arrive. */
void kw_subscription_forget_torn(kw_subscription *sub);

/* True if the queue is over its limit. */
static inline bool kw_subscription_is_full(const kw_subscription *sub) {
  return sub->bytes > sub->max_bytes || sub->events > KW_SUBSCRIPTION_EVENTS;
}

/* True if the queue is at most half full; or if no notice in it can be taken, because its only revision is not
 * complete. */
static inline bool kw_subscription_has_room(const kw_subscription *sub) {
  bool is_low = sub->bytes <= sub->max_bytes / 2 && sub->events <= KW_SUBSCRIPTION_EVENTS / 2;
  return is_low || sub->pieces == sub->unfinished;
}

#endif
