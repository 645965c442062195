/* SPDX-License-Identifier: MIT
 *
 * store: a versioned key-value store with etcd's semantics. It reads no clock, except to measure what takes time:
 * flushes, and the steps of compactions.
 *
 * A write has two calls: kw_store_apply (or kw_store_grant, kw_store_revoke_within) evaluates the write and changes the
 * state; then kw_store_commit makes the change final, or kw_store_rollback undoes it without a trace. Between the two,
 * the caller can build its answer, and can fail. No other function may be called between the two.
 *
 * A store in memory makes a write visible when it is committed. A durable store makes it visible when it is durable;
 * its threads, see disk/committer.h, do the I/O. Only these functions block on the disk: opening, kw_store_wait,
 * kw_store_free, and a kw_store_poll that takes a defragmentation.
 *
 * Unless its contract says otherwise, a function that runs out of memory returns KW_ERR_NO_MEMORY and leaves the store
 * as it was.
 *
 * Work that depends on time has two functions: kw_store_deadline returns when there is work to do, and kw_store_step
 * does a bounded part of it. Times are milliseconds of the driver's clock, which may be any monotonic clock.
 */
#ifndef KW_STORE_STORE_H
#define KW_STORE_STORE_H

#include "base/arena.h"
#include "disk/committer.h"
#include "disk/tickets.h"
#include "model/error.h"
#include "model/kv.h"
#include "model/op.h"
#include "model/reply.h"
#include "store/counters.h"
#include "store/log.h"
#include "store/rows.h"
#include "store/work.h"

#define KW_NEVER INT64_MAX

#define KW_DEFAULT_MAX_REQUEST_BYTES 1572864
#define KW_DEFAULT_MAX_TXN_OPS 128
#define KW_DEFAULT_QUOTA INT64_C(2147483648)
#define KW_DEFAULT_MIN_LEASE_TTL_S 2
#define KW_DEFAULT_STEP_RECORDS 1000 /* etcd's batch: about a millisecond of work */
#define KW_MIN_JOURNAL_SEGMENT_BYTES (64 << 10)
#define KW_MAX_JOURNAL_SEGMENT_BYTES (1 << 30)
#define KW_DEFAULT_HISTORY_BYTES (INT64_C(64) << 20)

typedef struct kw_store kw_store;

/* {====== Opening: store.c, load.c ====== */

/* Zero means the default only for the quota: the defaults of all other options come from kw_store_defaults. */
typedef struct kw_store_options {
  int64_t max_request_bytes;     /* of a write as a message, plus 18 bytes that etcd adds */
  int64_t max_txn_ops;           /* see kw_check_op */
  int64_t quota;                 /* bytes; 0: the default; negative: unlimited */
  int64_t min_lease_ttl;         /* seconds */
  int64_t step_records;          /* records that one step of compaction visits */
  int64_t journal_segment_bytes; /* size of new segments of the journal */
  bool replica;          /* revisions come from upstream, see store/replica.h; path must be NULL */
  int64_t history_bytes; /* of a replica: bound of its history, in bytes of memory */
  int64_t history_idle_bytes; /* of a replica: the bound while no reader needs the past */
  int64_t history_revisions;  /* of a replica: bound of its history, in revisions with events */
  int64_t history_age_ms;     /* of a replica: bound of its history, as an age; KW_NEVER: none */
  uint64_t seed;              /* of the lease ids that the store chooses */
  uint64_t hash_seed;         /* of the table of leases; secret */
  bool has_threads;           /* of a durable store; false: kw_store_work does their jobs */
  const char *path; /* directory of a durable store, borrowed by kw_store_open; NULL: in memory */
} kw_store_options;

/* Returns the defaults of all options. */
kw_store_options kw_store_defaults(void);

/* Opens a store, which the caller owns. A durable store then has its leases, each with its full time from `now` on, and
 * its rows, but no records: kw_store_load reads these. Returns KW_OK; KW_ERR_NO_MEMORY, perhaps with a sentence in
 * `text`; or KW_ERR_STORAGE, KW_ERR_NO_SPACE, or KW_ERR_CORRUPT if the store is damaged, with a sentence in `text`. */
int kw_store_open(const kw_store_options *options, int64_t now, kw_store **store,
                  char text[KW_REASON_ROOM]);

/* Reads up to `n` records of a store that was just opened, fewer if they are large. Sets *done to the number of records
 * read so far, *total to the number of all. Until they are equal, only this function and kw_store_free may be called. A
 * store in memory has no records to read. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT with a sentence in
 * `text`; after an error the store can only be freed. */
int kw_store_load(kw_store *store, size_t n, size_t *done, size_t *total,
                  char text[KW_REASON_ROOM]);

/* Waits until the submitted commit group is durable, and frees the store. Committed writes that were not submitted are
 * lost. In a child process only frees memory. */
void kw_store_free(kw_store *store);

/* True if the store is durable and was opened by a parent of this process. The child may only free it, which leaves
 * the parent's store alone. */
bool kw_store_is_inherited(const kw_store *store);

/* }====== */

/* {====== Durability: durability.c ======
 *
 * A caller flushes after its writes, and polls after the bell has rung; a driver does both in every turn of its loop.
 *
 * After any failure, all writes that are not durable are undone. If the disk is full, the alarm KW_ALARM_NO_SPACE is
 * also raised. If memory is short, nothing else happens. After any other failure the undone writes may still be on the
 * disk: the durable state can be read, but all writes fail with KW_ERR_STORAGE until the store is opened again.
 */

/* Submits the committed writes as a commit group, if there are any and the committer is idle. Does nothing in memory,
 * nor during a pause, see disk/pause.h: the bell rings at the end of the pause. After a failure, a group with only
 * background changes is submitted after a delay. */
void kw_store_flush(kw_store *store);

/* Takes the outcome of the submitted commit group, and submits the next one. Returns false if there was no outcome.
 * Releases borrowed records. */
bool kw_store_poll(kw_store *store);

/* Sets the bell that other threads ring: after each commit group and each checkpoint, after a pause, and when a
 * snapshot needs records or is ready. The store takes the caller's reference. With an all-zero bell nothing rings, and
 * there is no pause. */
void kw_store_set_bell(kw_store *store, kw_bell bell);

/* A durable store without threads has this many workers, numbered from 0: for the commit thread and the checkpointer. A
 * function that waits does the jobs that it waits for. */
#define KW_STORE_WORKERS 2

/* True if the store is durable, and has threads. */
bool kw_store_has_threads(const kw_store *store);

/* True if a worker has a job to do. */
bool kw_store_has_job(const kw_store *store, int number);

/* Does the job of a worker, if there is one. */
void kw_store_work(kw_store *store, int number);

/* Returns a ticket for all writes that were committed so far, and so for everything that an answer may have seen. The
 * ticket does not include background changes: steps of a compaction, and the alarm of a full disk. In memory, and once
 * the storage has failed, returns 0, which is always settled with KW_OK. */
uint64_t kw_store_ticket(const kw_store *store);

/* Makes the next ticket include the background changes so far. The next flush then submits them without delay, and the
 * next step resumes a paused compaction. */
void kw_store_include_background(kw_store *store);

/* True once the writes of a ticket are durable, or have failed. */
bool kw_store_is_settled(const kw_store *store, uint64_t ticket);

/* Returns KW_OK if the writes of a ticket are durable, KW_UNSETTLED (positive) if the ticket is not settled, else the
 * error of the writes; KW_ERR_STORAGE also if the outcome is no longer known. */
int kw_store_outcome(const kw_store *store, uint64_t ticket);

/* Submits the writes of a ticket, and waits until the ticket is settled. The store must not be busy. Returns the
 * outcome of the ticket. */
int kw_store_wait(kw_store *store, uint64_t ticket);

/* Returns the newest settled ticket. */
uint64_t kw_store_settled(const kw_store *store);

/* True if there are changes that are not settled, including background changes. */
bool kw_store_is_pending(const kw_store *store);

/* True if the store has a directory. */
bool kw_store_is_durable(const kw_store *store);

/* Writes all durable groups and the next commit group to the database. Does nothing in memory. The next ticket includes
 * this checkpoint. Returns KW_OK, or KW_ERR_STORAGE if the storage has failed. */
int kw_store_checkpoint(kw_store *store);

/* Returns unused space of the database to the file system, with the next commit group. Does nothing in memory. Returns
 * KW_OK, or KW_ERR_STORAGE once the storage has failed. kw_store_defragmented returns the outcome. */
int kw_store_defragment(kw_store *store);

/* Returns the outcome of the last defragmentation: KW_OK; or KW_ERR_CORRUPT, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or
 * KW_ERR_ABORTED, with a sentence in `text`, and then the database is as it was. The commit group of the
 * defragmentation must be durable: after a failure of the group nothing was defragmented. */
int kw_store_defragmented(const kw_store *store, char text[KW_REASON_ROOM]);

/* }====== */

/* {====== Writing: store.c, txn.c, write.c ====== */

/* Takes a record of a reply from an evaluation of several turns, in the order of the reply. The record is borrowed
 * until the turn ends, and is not added to the reply. Returns KW_OK, or an error with which the evaluation fails. */
typedef int (*kw_on_record)(kw_reply *reply, const kw_op *op, const kw_blob *record, void *ctx);

/* The owner of a long write, see kw_store_begin. */
typedef struct kw_write_owner {
  kw_on_record on_record; /* NULL: the reply has no records */
  /* The write was evaluated. Returns KW_OK; or an error, with which the write then fails and is rolled back. May be
   * NULL. */
  int (*on_ready)(void *ctx);
  /* The write has ended. With KW_OK the write was evaluated, and this function commits it or rolls it back. With an
   * error the write was rolled back. With KW_ONLY_READS the write has changed nothing, see kw_store_begin. */
  void (*on_end)(int rc, void *ctx);
  /* The last call: op, arena and reply are no longer needed. May be NULL. */
  void (*on_free)(void *ctx);
  void *ctx;
} kw_write_owner;

/* Returns the maximum number of operations and compares in all lists of a transaction together. */
size_t kw_store_most_of_txn(const kw_store *store);

/* True if an op cannot write, whatever the results of its compares: a range, or a transaction of only ranges and such
 * transactions. Defined in check.c. */
bool kw_store_only_reads(const kw_op *op);

/* Evaluates an op. An op that only reads sees the visible state; a commit is allowed, but not needed. All other ops see
 * the applied state, and need a commit or a rollback. The arrays of the reply are in the arena. Its records are
 * borrowed until the next kw_store_apply or kw_store_seek, and until the next call that changes, steps, polls, waits
 * for or hashes the store; kw_store_commit leaves them valid.
 *
 * After an error no key has changed, and no commit or rollback is needed. Errors of every op: those of kw_check_op;
 * KW_ERR_COMPACTED or KW_ERR_FUTURE_REVISION of a range; KW_ERR_CORRUPT if a record cannot be read. Errors of a
 * write: KW_ERR_READ_ONLY in a replica; KW_ERR_STORAGE once the storage has failed; KW_ERR_TOO_MANY_REQUESTS if too
 * many bytes wait for the disk; KW_ERR_REQUEST_TOO_LARGE; KW_ERR_CORRUPT while that alarm is armed. Errors of a put,
 * or of a transaction with one: KW_ERR_LEASE_NOT_FOUND; KW_ERR_KEY_NOT_FOUND; KW_ERR_NO_SPACE while that alarm is
 * armed, or if the quota is exceeded, which arms the alarm. */
int kw_store_apply(kw_store *store, const kw_op *op, kw_arena *arena, kw_reply *reply);

/* Adds a reference to a record to a reply. The arena is that of its list. Returns KW_OK or KW_ERR_NO_MEMORY. */
int kw_reply_retain(kw_reply *reply, kw_arena *arena, const kw_blob *record);

/* Releases the records of a reply that has references to them, and those of its responses. */
void kw_reply_release(const kw_reply *reply);

/* Like kw_store_apply, within the work of a turn. `limit` bounds the memory that records of the reply take, in bytes,
 * unless the op is a plain range. The store must not be busy, unless the op only reads. If the work is too little,
 * nothing has changed. The result is then KW_ONLY_READS if the op only reads (except for a range of one key), or is a
 * transaction whose compares have shown that it writes nothing, see store/long_read.h; otherwise KW_UNFINISHED.
 * KW_ERR_TOO_MANY_REQUESTS also if the reply is beyond the limit. */
int kw_store_apply_within(kw_store *store, const kw_op *op, size_t limit, kw_work *work,
                          kw_arena *arena, kw_reply *reply);

/* Begins a long write: kw_store_step evaluates the op in several turns. An op that only reads is not allowed. Until the
 * end of the long write the store is busy. If the compares of a transaction show that it writes nothing, and there is
 * more to do, the long write ends: on_end gets KW_ONLY_READS, and the op can be read at the applied revision. Op, arena
 * and reply belong to the owner; the reply is all zero, and the owner frees what on_record adds to it. The errors,
 * returned now or passed to on_end later, are those of kw_store_apply_within, and the error of a commit group that
 * fails before the end. kw_store_free ends the write without calling on_end. The store must not be busy. Returns KW_OK,
 * or an error: then nothing was begun.
 *
 * Unless its contract says otherwise, a function may be called while the store is busy. A write of kw_store_apply,
 * kw_store_grant, kw_store_compact and kw_store_change_rows first call kw_store_finish. kw_store_flush, kw_store_commit
 * and kw_store_rollback do nothing then. */
int kw_store_begin(kw_store *store, const kw_op *op, size_t limit, kw_arena *arena, kw_reply *reply,
                   kw_write_owner owner);

/* True during a long write, and while failed commit groups are being undone. */
bool kw_store_is_busy(const kw_store *store);

/* Continues the long write or the undoing that keeps the store busy, if it is busy. */
void kw_store_continue(kw_store *store, kw_work *work);

/* Completes the long write or the undoing in one piece, if the store is busy. */
void kw_store_finish(kw_store *store);

/* Writes that wait for the end of a long write have one common order: requests of clients, see rpc/write_queue.h, and
 * calls of tasks, which wait in Lua. Each write takes a number when it arrives; the lowest number is served first. */
uint64_t kw_store_take_number(kw_store *store);

/* Sets the lowest number of a waiting task; 0: no task waits. */
void kw_store_set_first_task(kw_store *store, uint64_t number);

/* True if a waiting task has a lower number than this. */
bool kw_store_has_task_before(const kw_store *store, uint64_t number);

/* Makes the open write final. */
void kw_store_commit(kw_store *store);

/* Undoes the open write. */
void kw_store_rollback(kw_store *store);

/* Compacts the history before `revision`. Once the compaction is durable, that history can no longer be read, and steps
 * remove the records. Needs no commit. Errors: KW_ERR_COMPACTED if this or a later revision was requested before;
 * KW_ERR_FUTURE_REVISION if the revision is not visible yet; KW_ERR_READ_ONLY in a replica; KW_ERR_CORRUPT while that
 * alarm is armed; or KW_ERR_STORAGE once the storage has failed. */
int kw_store_compact(kw_store *store, int64_t revision);

/* True until all requested compactions are durable and their records removed. False if a compaction is stuck at a
 * damaged record, or if the storage has failed. */
bool kw_store_is_compacting(const kw_store *store);

/* Returns KW_ERR_NO_MEMORY while a compaction pauses because memory was short, else KW_OK. */
int kw_store_compaction_failure(const kw_store *store);

/* }====== */

/* {====== Reading: store.c, read.c ====== */

typedef struct kw_store_status {
  int64_t revision;         /* newest visible revision */
  int64_t compact_revision; /* -1 before the first compaction */
  int64_t keys;             /* live keys of the applied state */
  int64_t leases;           /* of the applied state */
  int64_t db_size;          /* bytes */
  int64_t db_size_in_use;   /* bytes of db_size that have data */
  int64_t quota;            /* bytes; 0: none */
  int64_t commits;          /* commit groups that became durable since the store was opened */
  unsigned alarms;          /* kw_alarm bits */
  unsigned own_alarms;      /* without those of other members */
  bool lacks_journal;       /* the store was opened after a crash, and its journal was missing */
} kw_store_status;

/* Returns the status of the store. */
kw_store_status kw_store_get_status(const kw_store *store);

typedef struct kw_store_metrics {
  kw_store_status status;
  kw_store_counters counters;
  uint64_t revoked;           /* leases that were revoked, and have ended, */
  uint64_t expired;           /* and those of them whose time was over */
  int64_t applied;            /* see kw_store_applied */
  size_t index_bytes;         /* estimated memory */
  size_t log_bytes;           /* memory of records */
  size_t lease_bytes;         /* estimated memory */
  kw_committer_counters disk; /* all 0 for a store in memory */
  size_t lacking_bytes;       /* of records that the journal has, and the database lacks */
} kw_store_metrics;

/* Returns what the store counts and holds. O(1). */
kw_store_metrics kw_store_get_metrics(const kw_store *store);

/* Returns NULL, or a sentence that explains why the storage has failed, valid until the store is freed. */
const char *kw_store_failure(const kw_store *store);

/* Returns the visible alarms, own and of other members, as bits of kw_alarm, and KW_STORAGE_FAILED if the storage has
 * failed. */
unsigned kw_store_trouble(const kw_store *store);

/* Returns the newest visible revision. */
int64_t kw_store_revision(const kw_store *store);

/* Returns the newest committed revision. It is visible once it is durable. */
int64_t kw_store_applied(const kw_store *store);

/* Returns the compacted revision, or -1 before the first compaction. */
int64_t kw_store_compact_revision(const kw_store *store);

/* Returns the revision of the last requested compaction. It becomes the compacted revision when it is durable. */
int64_t kw_store_compact_requested(const kw_store *store);

/* True if the store takes its revisions from upstream. */
bool kw_store_is_replica(const kw_store *store);

/* Returns a cursor into the log, before the first event of `rev` or later. The cursor is valid until the store changes.
 * Releases borrowed records, and resets kw_store_read_failure to KW_OK, so that a reader does not see the failure of an
 * earlier reader. */
kw_log_cursor kw_store_seek(const kw_store *store, kw_revision rev);

/* Moves to the next visible event. kw_log_entry says how long its bytes are valid. Returns false at the end, and at a
 * record that cannot be read, see kw_store_read_failure. */
bool kw_store_next(const kw_store *store, kw_log_cursor *cursor, kw_log_entry *entry);

/* Returns the record that a key had before a change of revision `rev`, borrowed as from kw_store_apply. Returns NULL if
 * the key did not exist, or if `rev` - 1 is below `compacted`. An unreadable record is empty. `compacted` is the
 * store's compacted revision, or a lower revision from which on the history is known to exist still. */
kw_blob *kw_store_previous(const kw_store *store, kw_slice key, int64_t rev, int64_t compacted);

#define KW_PREVIOUS_UNREADABLE SIZE_MAX

/* Returns the size of the record that kw_store_previous returns; 0 if there is none; KW_PREVIOUS_UNREADABLE if it
 * cannot be read. */
size_t kw_store_previous_size(const kw_store *store, kw_slice key, int64_t rev, int64_t compacted);

/* Returns why the last unreadable record since the last apply, seek, step, poll or hash could not be read:
 * KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT if it is damaged. Returns KW_OK if all were read. */
int kw_store_read_failure(const kw_store *store);

/* Returns the first revision from which on all events are known. */
int64_t kw_store_first_event(const kw_store *store);

/* Returns the first possible revision for a watch that asks to begin at `rev`: `rev`, or a later revision if events
 * after `rev` are missing. */
int64_t kw_store_first_event_from(const kw_store *store, int64_t rev);

/* }====== */

/* {====== Leases: lessor.c ====== */

typedef struct kw_lease_info {
  int64_t id;
  int64_t ttl;          /* whole seconds that remain; -1 if there is no such lease */
  int64_t granted_ttl;  /* seconds */
  const kw_slice *keys; /* in order; set only by a client that decodes a response */
  size_t n_keys;
} kw_lease_info;

/* Grants a lease of *ttl seconds. The store chooses the id if *id is 0, and raises *ttl to the option min_lease_ttl.
 * Sets *id and *ttl to the granted values. Needs a commit or a rollback. Errors: KW_ERR_LEASE_TTL_TOO_LARGE,
 * KW_ERR_LEASE_EXISTS, KW_ERR_NO_MEMORY, KW_ERR_READ_ONLY in a replica, KW_ERR_STORAGE once the storage has failed,
 * KW_ERR_NO_SPACE if the quota is exceeded, KW_ERR_NO_SPACE or KW_ERR_CORRUPT while that alarm is armed. */
int kw_store_grant(kw_store *store, int64_t now, int64_t *id, int64_t *ttl);

/* Revokes a lease, and deletes its keys, within the work of a turn. The store must not be busy. Needs a commit or a
 * rollback. Errors: KW_ERR_LEASE_NOT_FOUND, KW_ERR_NO_MEMORY, KW_ERR_READ_ONLY in a replica, KW_ERR_CORRUPT while that
 * alarm is armed, or KW_ERR_STORAGE once the storage has failed. Returns KW_UNFINISHED, with nothing changed, if the
 * lease has too many keys for a turn. */
int kw_store_revoke_within(kw_store *store, int64_t id, kw_work *work);

/* Begins a long write that revokes a lease, like kw_store_begin. Errors are those of kw_store_revoke_within. */
int kw_store_begin_revoke(kw_store *store, int64_t id, kw_write_owner owner);

/* Gives a lease its full time again, from `now` on. Sets *ttl to the granted ttl in seconds, or to 0 if there is no
 * such lease. Needs no commit. An expired lease is not renewed, and *ttl is 0: the next steps revoke it. A lease whose
 * revocation is not durable yet is not renewed either, but *ttl is still its ttl. */
void kw_store_keepalive(kw_store *store, int64_t now, int64_t id, int64_t *ttl);

/* Sets the tag of a lease: once the lease has finally ended, kw_store_next_ended returns this number, unless the number
 * is 0. Does nothing if there is no such lease. */
void kw_store_tag_lease(kw_store *store, int64_t id, int64_t tag);

/* Takes the next end of a tagged lease: its tag, and whether the lease has ended because it expired. Returns false if
 * there is none. The end of a lease is announced when it is durable. */
bool kw_store_next_ended(kw_store *store, int64_t *tag, bool *has_expired);

/* Describes a lease, without its keys, which store/lease_read.h lists. An expired lease counts as nonexistent. */
void kw_store_time_to_live(const kw_store *store, int64_t now, int64_t id, kw_lease_info *info);

/* }====== */

/* {====== Alarms: alarm.c, store.c ====== */

typedef enum kw_alarm { KW_ALARM_NO_SPACE = 1, KW_ALARM_CORRUPT = 2 } kw_alarm; /* bits of a set */
#define KW_ALARM_BITS 2
#define KW_STORAGE_FAILED (1u << KW_ALARM_BITS) /* see kw_store_trouble */

/* Arms an alarm of the store. Needs no commit. Returns KW_OK, or KW_ERR_STORAGE once the storage has failed. */
int kw_store_arm(kw_store *store, kw_alarm alarm);

/* Disarms the alarm of the store, but not those of other members. Needs no commit. Returns KW_OK, or KW_ERR_STORAGE
 * once the storage has failed. */
int kw_store_disarm_own(kw_store *store, kw_alarm alarm);

/* Disarms the alarm of the store and of all other members, whose alarms are rows: see store/alarm.h. The arena gives
 * the memory that the call needs. Returns KW_OK, KW_ERR_NO_MEMORY, KW_ERR_STORAGE or an error of
 * kw_store_change_rows. */
int kw_store_disarm(kw_store *store, kw_alarm alarm, kw_arena *arena);

/* }====== */

/* {====== Rows: store.c ====== */

/* Makes all changes of rows, or none of them; they become durable together. Needs no commit. Returns KW_OK, an error
 * of kw_rows_apply, KW_ERR_READ_ONLY in a replica, or KW_ERR_STORAGE once the storage has failed. */
int kw_store_change_rows(kw_store *store, const kw_row_change *changes, size_t n);

/* Returns the rows of the store, valid until they change. They include changes that are not durable yet. */
const kw_rows *kw_store_rows(const kw_store *store);

/* }====== */

/* {====== HashKV: hash.c ====== */

typedef struct kw_hash {
  uint32_t hash;
  int64_t revision; /* of the store */
  int64_t compact_revision;
  int64_t hash_revision; /* the hash is that of the store at this revision */
} kw_hash;

/* The state of a hash. All fields except `revision` are zero at the beginning. */
typedef struct kw_hash_walk {
  int64_t revision; /* of the hash; 0: the current one */
  kw_hash hash;     /* valid once the walk is done */
  bool has_begun;
  bool is_hashing; /* false: the walk still searches for a key that lives at the revision */
  bool is_done;
  /* Of the records up to the compacted revision, the hash only includes those that are the newest of their key at this
   * revision. */
  int64_t newest_at;
  kw_revision next; /* first revision that was not visited */
} kw_hash_walk;

/* Hashes up to `records` more records, fewer if they are large. Writes may happen between two calls; a compaction
 * restarts the walk. The caller repeats the call until walk->is_done. Releases borrowed records. Returns KW_OK,
 * KW_ERR_COMPACTED, KW_ERR_FUTURE_REVISION, or the error of a record that cannot be read. */
int kw_store_hash(const kw_store *store, kw_hash_walk *walk, size_t records);

/* }====== */

/* {====== The hook: state.h, replica.c ====== */

/* Functions that the store calls while it makes revisions visible, or begins to compact. These are calls in
 * kw_store_commit, kw_store_compact, kw_store_step, kw_store_poll, kw_store_wait and the functions of store/replica.h.
 * They must not change the store. Each may be NULL. */
typedef struct kw_store_hook {
  /* The revisions after `before`, up to the store's revision, have become visible. */
  void (*on_visible)(int64_t before, void *ctx);
  /* History is about to be compacted. */
  void (*on_compact)(void *ctx);
  /* Returns the first visible revision that was not delivered to the watchers that keep up, or INT64_MAX. While that
   * revision is at or below the compacted one, a compaction removes nothing. */
  int64_t (*undelivered)(void *ctx);
  void *ctx;
} kw_store_hook;

/* Sets the hook of the store, which copies it. Replaces an earlier hook. */
void kw_store_set_hook(kw_store *store, kw_store_hook hook);

/* Called for a watcher that begins at an older revision, or whose events were refused: a replica then keeps as much
 * history as history_bytes allows, until that much newer history has been added. */
void kw_store_want_history(kw_store *store);

/* }====== */

/* {====== Time: store.c ====== */

/* Returns the time of the next useful kw_store_step: INT64_MIN if it is due now, KW_NEVER if there is none. */
int64_t kw_store_deadline(const kw_store *store);

/* Continues the long write, if there is one. Otherwise begins a checkpoint that is due, revokes expired leases and
 * continues a compaction, a bounded part of each, and flushes. Returns true if more is due now. */
bool kw_store_step(kw_store *store, int64_t now);

/* }====== */

#endif
