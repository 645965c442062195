/* SPDX-License-Identifier: MIT
 *
 * state: what a store consists of. For the files of this folder only.
 *
 * The index has the applied state: what the newest write left. A revision becomes visible when the log calls it
 * durable. Until then it can be taken back: the open write (`open`), which was applied since the last commit, and what
 * was committed and is not durable. Undone in reverse, they leave no trace.
 */
#ifndef KW_STORE_STATE_H
#define KW_STORE_STATE_H

#include "base/link.h"
#include "store/index.h"
#include "store/rows.h"
#include "store/lease.h"
#include "store/log.h"
#include "store/store.h"

typedef enum kw_undo_kind { KW_UNDO_CHANGE, KW_UNDO_GRANT, KW_UNDO_REVOKE } kw_undo_kind;

/* How to take one step of a write back; each is one change of the disk, too. */
typedef struct kw_undo {
  kw_undo_kind kind;
  union {
    kw_key_history *history; /* whose record is the newest of the log */
    kw_lease *lease;         /* which was granted; or revoked, and is kept here */
  };
  kw_key_state before; /* of the history */
} kw_undo;

/* All that can be taken back, the oldest first: of the group that is being written, the one that gathers, the open
 * write. */
typedef struct kw_undo_list {
  kw_undo *steps;
  size_t n;
  size_t cap;
  size_t submitted; /* so many are being written */
  size_t committed; /* so many are not of the open write */
} kw_undo_list;

typedef struct kw_open_write {
  int64_t main; /* the revision of its changes, if it has any */
  size_t n;     /* how many records it has appended to the log */
} kw_open_write;

struct kw_store {
  kw_store_options options;
  kw_index index;
  kw_log *log;
  kw_leases leases;
  kw_rows rows;
  unsigned alarms; /* the store's own; and by KW_ALARM_BITS higher, those of other members */
  unsigned raised; /* of its own, those of a failure of the disk: everybody sees them at once */

  int64_t applied;  /* the newest revision that the index has, without the open write */
  int64_t revision; /* the newest that is visible: applied and durable */
  kw_open_write open;
  kw_undo_list undo;

  int64_t compact_asked;    /* what was asked for last; it takes effect when it is durable */
  int64_t compact_revision; /* -1 before the first compaction */
  int64_t compact_next;     /* the first revision that the running compaction has not visited */
  bool compact_is_stuck;    /* at a damaged record, until the alarm is out */
  int64_t history_bytes;    /* of a replica: the records after compact_revision */
  int64_t base_revision;    /* of a replica: up to here there is a state, but not what led to it */

  kw_revision loading; /* of a durable store: the first revision that was not read yet */

  bool is_asked;    /* something was asked for since the last flush */
  bool was_asked;   /* the same of the group that is being written */
  uint64_t asked;   /* the ticket of the last group that was asked for; 0 if it has failed */
  bool is_held;     /* a group that nobody asked for has failed, and is tried again later: */
  int64_t retry_at; /* then */

  int64_t now; /* of the last step */
  int failure; /* KW_OK, or what has made the store read-only */

  kw_store_hook hook; /* its functions are NULL while nobody watches */
  kw_bell bell;       /* rung by other threads; or none */
  kw_link snapshots;  /* that are being written or read */

  kw_arena scratch; /* for the length of a step */
};

/* What a read inside of the open write sees. */
static inline int64_t kw_store_seen_revision(const kw_store *store) {
  return store->open.n > 0 ? store->open.main : store->applied;
}

/* The record that a change wrote. */
static inline kw_blob *kw_store_record(const kw_store *store, const kw_change *change) {
  return kw_log_read(store->log, kw_change_revision(change), change->tombstone);
}

#endif
