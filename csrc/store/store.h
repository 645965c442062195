/* SPDX-License-Identifier: MIT
 *
 * store: a versioned key-value store with etcd's semantics. It reads no clock. A durable store does its I/O in the
 * commit thread of its log; only kw_store_wait and opening block.
 *
 * A write goes in two moves: kw_store_apply (or kw_store_grant, kw_store_revoke) evaluates it and changes the state,
 * then kw_store_commit makes the change final or kw_store_rollback undoes it, as if it had never been asked. So a
 * caller can build its answer in between, and fail. Nothing else may be called between the two moves.
 * Every function that can run out of memory returns KW_ERR_NO_MEMORY and leaves the store as it was.
 *
 * Time has one door: kw_store_deadline says when there is something to do, kw_store_step does a bounded part
 * of it. Times are milliseconds of the driver's clock, any clock that never goes back.
 */
#ifndef KW_STORE_STORE_H
#define KW_STORE_STORE_H

#include "base/arena.h"
#include "model/error.h"
#include "model/kv.h"
#include "model/op.h"
#include "model/reply.h"
#include "store/committer.h"
#include "store/log.h"
#include "store/rows.h"
#include "store/tickets.h"

#define KW_NEVER INT64_MAX

#define KW_DEFAULT_MAX_REQUEST_BYTES 1572864
#define KW_DEFAULT_MAX_TXN_OPS 128
#define KW_DEFAULT_QUOTA INT64_C(2147483648)
#define KW_DEFAULT_MIN_LEASE_TTL_S 2
#define KW_LEASE_MAX_TTL INT64_C(9000000000) /* seconds; etcd's limit */
#define KW_DEFAULT_STEP_RECORDS 1000         /* etcd's batch: about a millisecond of work */
#define KW_DEFAULT_HISTORY_BYTES (INT64_C(64) << 20)

typedef struct kw_store kw_store;

typedef struct kw_store_options {
  int64_t max_request_bytes;
  int64_t max_txn_ops;
  int64_t quota;         /* bytes; 0: the default, negative: none */
  int64_t min_lease_ttl; /* seconds */
  int64_t step_records;  /* how many records one step of compaction visits */
  bool replica;          /* revisions come from upstream, see store/replica.h */
  int64_t history_bytes; /* of a replica: how much history it keeps */
  uint64_t seed;         /* of the lease ids that the store chooses */
  const char *path;      /* of the directory of a durable store; NULL: in memory */
} kw_store_options;

typedef enum kw_alarm { KW_ALARM_NO_SPACE = 1, KW_ALARM_CORRUPT = 2 } kw_alarm; /* bits of a set */
#define KW_ALARM_BITS 2

typedef struct kw_store_status {
  int64_t revision;
  int64_t compact_revision; /* -1 before the first compaction */
  int64_t keys;
  int64_t leases;
  int64_t db_size;
  int64_t db_size_in_use;
  int64_t quota;   /* 0: none */
  int64_t commits; /* groups of writes that have become durable since it was opened */
  unsigned alarms;
  unsigned own_alarms; /* without those of other members */
} kw_store_status;

/* What the store tells whoever watches it. It may be called in the middle of a write: nothing of the store may be
 * changed from there. */
typedef struct kw_store_hook {
  /* Everything up to the store's revision, and after `before`, has become visible. */
  void (*on_visible)(int64_t before, void *ctx);
  /* A replica, which was at `before`, has been given another base: history does not go on. */
  void (*on_replace)(int64_t before, void *ctx);
  void *ctx;
} kw_store_hook;

typedef struct kw_lease_info {
  int64_t id;
  int64_t ttl; /* whole seconds that remain; -1 if there is no such lease */
  int64_t granted_ttl;
  const kw_slice *keys; /* in order, in the arena */
  size_t n_keys;
} kw_lease_info;

typedef struct kw_hash {
  uint32_t hash;
  int64_t revision; /* of the store */
  int64_t compact_revision;
  int64_t hash_revision;
} kw_hash;

/* The defaults, to be changed where needed. */
kw_store_options kw_store_defaults(void);

/* Opens a store; a durable one as it was left, with every lease at its full time, but for its records.
 * KW_ERR_NO_MEMORY; KW_ERR_STORAGE, KW_ERR_NO_SPACE, or KW_ERR_CORRUPT if it is damaged, with a sentence in
 * `text`. */
int kw_store_open(const kw_store_options *options, int64_t now, kw_store **store,
                  char text[KW_DISK_TEXT]);
void kw_store_free(kw_store *store);

/* Reads up to `n` records of a durable store that was opened. Until all are read, which *done and *total tell, only
 * this and kw_store_free may be called. Errors are those of open. */
int kw_store_load(kw_store *store, size_t n, size_t *done, size_t *total, char text[KW_DISK_TEXT]);

/* Whether it is durable and belongs to the parent of this process: then it can only be freed. */
bool kw_store_is_inherited(const kw_store *store);

/* {====== Durability ======
 *
 * What was committed is visible once it is durable: at once in memory, with its group on the disk. kw_store_flush
 * hands over what is committed, kw_store_poll takes what has become of it: both belong into every turn of a loop,
 * after the disk has rung its bell. The reference to the bell becomes the store's.
 *
 * Without room on the disk, what was not durable has not happened, and the alarm is raised. After any other failure
 * writes fail with KW_ERR_STORAGE until the store is opened anew, and what is durable can be read.
 */
void kw_store_flush(kw_store *store);
bool kw_store_poll(kw_store *store);
void kw_store_set_bell(kw_store *store, kw_bell bell);

/* Returns a ticket for all writes that have been committed up to now, and that an answer may have seen. Writes of the
 * store itself are not included: steps of a compaction, and an alarm that a full disk has raised. */
uint64_t kw_store_ticket(const kw_store *store);

/* For those who wait for that, too: the next ticket is for all that there is to write. */
void kw_store_include_background(kw_store *store);

/* True once the writes of this ticket are durable, or have failed. */
bool kw_store_is_settled(const kw_store *store, uint64_t ticket);

/* Returns KW_OK if the writes of this ticket are durable, KW_UNSETTLED (above 0) if the ticket is not settled, else
 * why the writes failed. KW_ERR_STORAGE also if the outcome is unknown. */
int kw_store_outcome(const kw_store *store, uint64_t ticket);

/* Waits for that, in the way of those who have no loop. */
int kw_store_wait(kw_store *store, uint64_t ticket);

/* Gives the space back that is not in use, with the next group; then kw_store_defragmented says how that went. In
 * memory there is nothing to do. */
int kw_store_defragment(kw_store *store);
int kw_store_defragmented(const kw_store *store);

/* The ticket up to which all fates are known; whether there is anything beyond; and whether the store has a disk. */
uint64_t kw_store_settled(const kw_store *store);
bool kw_store_is_pending(const kw_store *store);
bool kw_store_is_durable(const kw_store *store);

/* }====== */

/* Evaluates any op. The reply's arrays lie in the arena, its records are borrowed until the next call. A reply to
 * a plain range needs no commit, but may have one. */
int kw_store_apply(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply);

void kw_store_commit(kw_store *store);
void kw_store_rollback(kw_store *store);

/* Forgets history before `revision`. Takes effect at once; records are removed by the steps that follow. */
int kw_store_compact(kw_store *store, int64_t revision);
bool kw_store_is_compacting(const kw_store *store); /* no longer, once the storage has failed */

/* Leases. An id of 0 lets the store choose; *id and *ttl become what was granted. Grant and revoke want a commit. */
int kw_store_grant(kw_store *store, int64_t now, int64_t *id, int64_t *ttl);
int kw_store_revoke(kw_store *store, int64_t id);

/* Gives a lease its time again; *ttl is 0 if it is not there. A lease past its time is not brought back: the
 * coming steps revoke it. */
void kw_store_keepalive(kw_store *store, int64_t now, int64_t id, int64_t *ttl);
int kw_store_time_to_live(const kw_store *store, int64_t now, int64_t id, bool keys,
                          kw_arena *arena, kw_lease_info *info);
/* The ids of all leases, the soonest to end first. */
int kw_store_leases(const kw_store *store, kw_arena *arena, const int64_t **ids, size_t *n);

/* Alarms. Those of other members of a cluster have the same effect as the store's own. They are rows of the
 * table "alarms", with the keys no_space/ID and corrupt/ID. */
int kw_store_arm(kw_store *store, kw_alarm alarm);
int kw_store_disarm_own(kw_store *store, kw_alarm alarm);

/* Ends the alarm of the store and of all other members. */
int kw_store_disarm(kw_store *store, kw_alarm alarm, kw_arena *arena);

/* Rows: all of the changes happen at once, and become durable together, or none does. They want no commit. */
int kw_store_change_rows(kw_store *store, const kw_row_change *changes, size_t n);
int kw_store_rows(const kw_store *store, const kw_rows **rows); /* until the next change */

/* etcd's HashKV, by up to so many records at a time; writes may come between. A walk begins with all but `asked`
 * zero; revision 0 is the current one. A compaction makes it begin anew. */
typedef struct kw_hash_walk {
  int64_t asked;
  kw_hash hash; /* good once it is done */
  bool has_begun;
  bool is_done;
  int64_t kept_at;
  kw_revision next;
} kw_hash_walk;

int kw_store_hash(const kw_store *store, kw_hash_walk *walk, size_t records);

kw_store_status kw_store_get_status(const kw_store *store);
int64_t kw_store_revision(const kw_store *store);
int64_t kw_store_compact_revision(const kw_store *store);

/* What was asked for last: the same, once it is durable. */
int64_t kw_store_compact_requested(const kw_store *store);

/* The newest revision that was committed; it is visible once it is durable. */
int64_t kw_store_applied(const kw_store *store);
bool kw_store_is_replica(const kw_store *store);

void kw_store_set_hook(kw_store *store, kw_store_hook hook);

/* What happened from a revision on: a cursor into the log, good until the store changes. */
kw_log_cursor kw_store_seek(const kw_store *store, int64_t rev);
bool kw_store_next(const kw_store *store, kw_log_cursor *cursor, kw_log_entry *entry);

/* The record that the key had before a change of revision `rev`, or NULL: it was not there, or that is forgotten. An
 * empty one could not be read. */
kw_blob *kw_store_previous(const kw_store *store, kw_slice key, int64_t rev);

/* Why the last record that could not be read since the last step or poll could not: KW_ERR_NO_MEMORY, or
 * KW_ERR_CORRUPT if it is damaged. KW_OK if all could. kw_store_next has come to an end there. */
int kw_store_read_failure(const kw_store *store);

/* The first revision whose events are all known. */
int64_t kw_store_first_event(const kw_store *store);

/* When kw_store_step is next of use; KW_NEVER if nothing is to come. */
int64_t kw_store_deadline(const kw_store *store);

/* Expires leases and goes on with a compaction, a bounded part of either. Returns whether more is due now. */
bool kw_store_step(kw_store *store, int64_t now);

#ifdef KW_PROBE
/* Returns the commit thread; NULL if the store is in memory. */
kw_committer *kw_store_committer(const kw_store *store);

/* Whether every invariant holds; else the text of one that does not. */
const char *kw_store_check(const kw_store *store);
#endif

#endif
