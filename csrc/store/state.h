/* SPDX-License-Identifier: MIT
 *
 * state: the struct kw_store. For the files of this folder only.
 *
 *   open write -> committed (applied) -> submitted -> durable (visible)
 *
 * The index has the applied state: the result of the newest committed write, and of the open one. A revision becomes
 * visible when it is durable; in memory, when it is committed. Until then its writes can be undone: first the open
 * write, which was applied since the last commit; then the committed writes that are not durable. Undone in reverse
 * order, they leave no trace.
 */
#ifndef KW_STORE_STATE_H
#define KW_STORE_STATE_H

#include "base/link.h"
#include "disk/committer.h"
#include "disk/pause.h"
#include "disk/tickets.h"
#include "store/counters.h"
#include "store/counts.h"
#include "store/index.h"
#include "store/lease.h"
#include "store/log.h"
#include "store/retention.h"
#include "store/rows.h"
#include "store/store.h"
#include "store/surplus.h"

/* Delay of the next try, if space or memory was short and no caller waits. */
#define KW_RETRY_MS 500
#define KW_OWN_ALARMS ((1u << KW_ALARM_BITS) - 1)

typedef enum kw_undo_kind {
  KW_UNDO_CHANGE,
  KW_UNDO_DELETE, /* of a key without lease, whose history keeps the state */
  KW_UNDO_GRANT,
  KW_UNDO_REVOKE
} kw_undo_kind;

/* How to undo one step of a write. Each step is also one change of the commit group. */
typedef struct kw_undo {
  kw_undo_kind kind;
  bool was_asleep; /* the key was asleep before the change, see kw_key_history */
  union {
    kw_key_history *history; /* of the changed or deleted key */
    kw_lease *lease;         /* the granted lease; or the revoked one, which the step owns */
  };
  kw_key_state before; /* state of the key before the step, if the step is a change */
} kw_undo;

/* All steps that can be undone, the oldest first: those of the submitted commit group, of the gathering one, and of the
 * open write. A large delete may have a million steps, so a step is one word: its target, with the kind in the lowest
 * bits. A change also has the state, after that word, and a last word with the same kind, and with KW_UNDO_ASLEEP if
 * the key was asleep. */
typedef struct kw_undo_list {
  uint64_t *words;
  size_t n;
  size_t cap;
  size_t submitted; /* words of the submitted group */
  size_t committed; /* words of both groups: all but those of the open write */
  size_t open;      /* steps of the open write */
  /* Number of the oldest word; numbers rise, and those of undone steps are reused. */
  uint64_t first;
} kw_undo_list;

/* Returns the number before which all steps are forgotten: the largest number if no step is left, since steps may have
 * been undone. */
static inline uint64_t kw_undo_first(const kw_undo_list *undo) {
  return undo->n == 0 ? UINT64_MAX : undo->first;
}

#define KW_UNDO_KINDS UINT64_C(3) /* bits */
#define KW_UNDO_ASLEEP UINT64_C(4)
#define KW_UNDO_CHANGE_WORDS 5

/* Returns the number of words of a step. `word` is its first or its last word. */
static inline size_t kw_undo_words(uint64_t word) {
  return (word & KW_UNDO_KINDS) == KW_UNDO_CHANGE ? KW_UNDO_CHANGE_WORDS : 1;
}

/* Writes a step. Returns its number of words. */
static inline size_t kw_undo_write(uint64_t *to, const kw_undo *step) {
  uint64_t kind = step->kind;
  to[0] = (uint64_t)(uintptr_t)step->history | kind;
  if (step->kind != KW_UNDO_CHANGE) return 1;
  to[1] = (uint64_t)step->before.create_revision;
  to[2] = (uint64_t)step->before.version;
  to[3] = (uint64_t)step->before.lease;
  to[4] = kind | (step->was_asleep ? KW_UNDO_ASLEEP : 0);
  return KW_UNDO_CHANGE_WORDS;
}

/* Reads the step that begins at a word. */
static inline kw_undo kw_undo_read(const uint64_t *from) {
  kw_undo step = {.kind = (kw_undo_kind)(from[0] & KW_UNDO_KINDS),
                  .history = (kw_key_history *)(uintptr_t)(from[0] & ~KW_UNDO_KINDS)};
  if (step.kind != KW_UNDO_CHANGE) return step;
  step.before = (kw_key_state){(int64_t)from[1], (int64_t)from[2], (int64_t)from[3]};
  step.was_asleep = (from[4] & KW_UNDO_ASLEEP) != 0;
  return step;
}

typedef struct kw_long_write kw_long_write; /* see store/long_write.h */

typedef struct kw_open_write {
  int64_t main; /* revision of its changes, if there are any */
  size_t n;     /* records that the write has appended to the log */
  int64_t ttl;  /* of the lease that it grants, in seconds; or 0 */
} kw_open_write;

/* The progress of a durable store towards durability. A change is *requested* if a caller has made it or waits for it.
 * All others are background changes: steps of a compaction, and the alarm of a full disk. */
typedef struct kw_durability {
  kw_tickets tickets;
  kw_commit_meta submitted; /* of the last submitted commit group */
  kw_commit_meta durable;   /* of the last durable commit group */
  uint64_t commits;         /* groups that became durable since the store was opened */
  bool must_checkpoint;     /* the next group comes with a checkpoint */
  bool must_defragment;     /* the next group comes with a defragmentation */
  /* Time of the next checkpoint; INT64_MIN: the next step sets it; KW_NEVER: there is none. */
  int64_t checkpoint_at;

  kw_pause pause;              /* before a submit */
  bool is_requested;           /* the gathering group has a requested change */
  bool is_submitted_requested; /* the submitted group has a requested change */
  /* Of the last submitted group with a requested change; 0 after a failure. */
  uint64_t requested_ticket;
  int failed;     /* error of the groups that are being undone; KW_OK: none */
  kw_fault fault; /* the cause of that error */
  bool has_loss; /* something cannot be undone: the storage has failed once the groups are undone */
  bool is_delayed;  /* a group with only background changes has failed, and will be retried */
  int64_t retry_at; /* when the group is retried */
} kw_durability;

struct kw_store {
  kw_store_options options;
  kw_database *database;   /* NULL, like the next two, if the store is in memory */
  bool lacks_journal;      /* see kw_store_status */
  kw_committer *committer; /* the commit thread and the checkpointer */
  kw_commit_group *group;  /* the committer's gathering commit group */
  kw_durability durability;
  kw_index index;
  kw_log *log;
  kw_leases leases;
  kw_rows rows;
  /* kw_alarm bits of the store; and of other members, shifted left by KW_ALARM_BITS. */
  unsigned alarms;
  /* Alarms of the store that failed commit groups have raised: visible before they are durable. */
  unsigned disk_alarms;

  int64_t applied;  /* newest revision of the index, without the open write */
  int64_t revision; /* newest visible revision */
  /* How often committed revisions were undone, or a replica got its base. */
  uint64_t rewrites;
  kw_counts counts;
  kw_store_counters counters; /* of committed writes, and of reads */
  kw_op_counts counting;      /* the same operations, and those of the open write */
  kw_open_write open;
  int64_t live_before;       /* while the store is busy: number of live keys before that */
  kw_long_write *long_write; /* the open write is evaluated in several turns; NULL: there is none */
  int write_failure;    /* KW_OK, or the error with which the long write is being rolled back */
  uint64_t last_number; /* the last number that kw_store_take_number has returned */
  uint64_t first_task;  /* lowest number of a task that waits; 0: none waits */
  int64_t expiring;     /* id of the lease that the long write revokes because it has expired */
  kw_undo_list undo;

  int64_t compact_requested; /* becomes compact_revision when it is durable */
  int64_t compact_revision;  /* -1 before the first compaction */
  kw_revision compact_next;  /* first revision that the running compaction has not visited */
  bool compact_is_stuck;     /* at a damaged record, until the alarm is disarmed */
  bool compact_is_delayed;   /* memory was short in the last step */
  int64_t compact_retry_at;  /* when the next step is due then */
  int64_t compact_began;     /* when the running compaction has begun: see kw_clock_ns */
  kw_retention retention;    /* of a replica: its history */
  int64_t base_revision;     /* of a replica: it has no events up to this revision */
  int64_t gap_after; /* of a replica: its content after this revision, and before gap_until, */
  int64_t gap_until; /* is unknown, see KW_REPLICA_MERGE; both 0: there is no gap */
  /* The point of gap_until: when a new gap opens, the history up to it is compacted. */
  kw_retention_point gap_end;
  struct kw_replica_fill *filling; /* of a replica: the fill that has not ended, or NULL */
  kw_index abandoned; /* of a replica: keys of an unused base, or of a replaced one, to be freed */
  bool is_merging;    /* `filling` writes a merge to the index and the log: the store is busy */

  kw_revision loading; /* of a durable store: first revision that is not loaded yet */

  kw_surplus surplus; /* memory that has to be returned to the system */

  int64_t now; /* time of the last step, or of opening */
  int failure; /* KW_OK, or KW_ERR_STORAGE: the store is read-only until it is opened again */
  char failure_text[KW_REASON_ROOM]; /* explains `failure` */

  kw_store_hook hook; /* its functions may be NULL */
  kw_bell bell;       /* rung by other threads */
  kw_link snapshots;  /* list of kw_snapshot */
};

/* Returns the revision that a read inside the open write sees. */
static inline int64_t kw_store_seen_revision(const kw_store *store) {
  return store->open.n > 0 ? store->open.main : store->applied;
}

/* Counts a range that was read, outside of a transaction. */
static inline void kw_store_count_range(kw_store *store) {
  store->counting.ranges++;
  store->counters.ops.ranges++;
}

/* Returns the record that a change has written. Borrowed, see kw_log_read. */
static inline kw_blob *kw_store_record(const kw_store *store, const kw_change *change) {
  return kw_log_read(store->log, kw_change_revision(change), change->tombstone);
}

/* Makes everything up to `rev` visible, and calls the hook. */
static inline void kw_store_set_visible(kw_store *store, int64_t rev) {
  int64_t before = store->revision;
  store->revision = rev;
  if (store->hook.on_visible != NULL) store->hook.on_visible(before, store->hook.ctx);
}

/* Makes `rev` the newest committed revision. In memory it becomes visible at once. */
static inline void kw_store_set_applied(kw_store *store, int64_t rev) {
  store->applied = rev;
  if (store->database == NULL) kw_store_set_visible(store, rev);
}

#endif
