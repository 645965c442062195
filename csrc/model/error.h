/* SPDX-License-Identifier: MIT
 *
 * error: all errors, in one list. Each has a number for C, a stable code for Lua, a gRPC status and a text. The text
 * of an error that etcd has, too, is exactly etcd's, since etcd's clients compare it.
 *
 * Functions return KW_OK, which is 0, or a negative kw_error.
 */
#ifndef KW_MODEL_ERROR_H
#define KW_MODEL_ERROR_H

#include "base/slice.h"

/* X(NAME, code, gRPC status, text) */
#define KW_ERRORS(X)                                                                               \
  X(EMPTY_KEY, "empty_key", 3, "etcdserver: key is not provided")                                  \
  X(KEY_NOT_FOUND, "key_not_found", 3, "etcdserver: key not found")                                \
  X(VALUE_PROVIDED, "value_provided", 3, "etcdserver: value is provided")                          \
  X(LEASE_PROVIDED, "lease_provided", 3, "etcdserver: lease is provided")                          \
  X(TOO_MANY_OPS, "too_many_ops", 3, "etcdserver: too many operations in txn request")             \
  X(DUPLICATE_KEY, "duplicate_key", 3, "etcdserver: duplicate key given in txn request")           \
  X(INVALID_SORT, "invalid_sort", 3, "etcdserver: invalid sort option")                            \
  X(REQUEST_TOO_LARGE, "request_too_large", 3, "etcdserver: request is too large")                 \
  X(COMPACTED, "compacted", 11, "etcdserver: mvcc: required revision has been compacted")          \
  X(FUTURE_REVISION, "future_revision", 11,                                                        \
    "etcdserver: mvcc: required revision is a future revision")                                    \
  X(NO_SPACE, "no_space", 8, "etcdserver: mvcc: database space exceeded")                          \
  X(LEASE_NOT_FOUND, "lease_not_found", 5, "etcdserver: requested lease not found")                \
  X(LEASE_EXISTS, "lease_exists", 9, "etcdserver: lease already exists")                           \
  X(LEASE_TTL_TOO_LARGE, "lease_ttl_too_large", 11, "etcdserver: too large lease TTL")             \
  X(TOO_MANY_REQUESTS, "too_many_requests", 8, "etcdserver: too many requests")                    \
  X(CORRUPT, "corrupt", 15, "etcdserver: corrupt cluster")                                         \
  X(NO_MEMORY, "out_of_memory", 8, "keywatch: out of memory")                                      \
  X(READ_ONLY, "read_only", 9, "keywatch: a replica accepts changes only from its server")         \
  X(STALE_REVISION, "stale_revision", 9, "keywatch: revision is not newer than the replica's own") \
  X(EMPTY_RANGE, "empty_range", 9, "mvcc: watcher range is empty")                                 \
  X(DUPLICATE_WATCH_ID, "duplicate_watch_id", 9,                                                   \
    "mvcc: duplicate watch ID provided on the WatchStream")                                        \
  X(LISTEN_FAILED, "listen_failed", 14, "keywatch: cannot listen")                                 \
  X(CANCELLED, "cancelled", 1, "keywatch: cancelled")                                              \
  X(TIMEOUT, "timeout", 4, "keywatch: timed out")                                                  \
  X(FULL, "full", 8, "keywatch: the watch queue is full: read from it first")                      \
  X(CLOSED, "closed", 14, "keywatch: the store is closed")                                         \
  X(ANSWER_TOO_LARGE, "answer_too_large", 8,                                                       \
    "keywatch: the server's answer is larger than max_message")                                    \
  X(MALFORMED_ANSWER, "malformed", 13, "keywatch: the server's answer is malformed")               \
  X(MALFORMED, "malformed", 13, "grpc: error unmarshalling request: malformed message")            \
  X(STOPPED, "stopped", 14, "etcdserver: server stopped")                                          \
  X(THREAD_FAILED, "thread_failed", 13, "keywatch: the thread has failed")                         \
  X(STORAGE, "storage", 14, "keywatch: the storage has failed")                                    \
  X(TOO_MANY_SNAPSHOTS, "too_many_snapshots", 8, "keywatch: too many concurrent snapshots")        \
  X(UNAVAILABLE, "unavailable", 14, "keywatch: no server can be reached")                          \
  X(DEADLINE_EXCEEDED, "deadline_exceeded", 4, "context deadline exceeded")                        \
  X(PERMISSION_DENIED, "permission_denied", 7, "etcdserver: permission denied")                    \
  X(UNAUTHENTICATED, "unauthenticated", 16, "etcdserver: invalid auth token")                      \
  X(INVALID_ARGUMENT, "invalid_argument", 3, "keywatch: invalid argument")                         \
  X(NOT_FOUND, "not_found", 5, "keywatch: not found")                                              \
  X(ALREADY_EXISTS, "already_exists", 6, "keywatch: already exists")                               \
  X(RESOURCE_EXHAUSTED, "resource_exhausted", 8, "keywatch: resource exhausted")                   \
  X(FAILED_PRECONDITION, "failed_precondition", 9, "keywatch: failed precondition")                \
  X(ABORTED, "aborted", 10, "keywatch: aborted")                                                   \
  X(OUT_OF_RANGE, "out_of_range", 11, "keywatch: out of range")                                    \
  X(UNIMPLEMENTED, "unimplemented", 12, "keywatch: unimplemented")                                 \
  X(INTERNAL, "internal", 13, "keywatch: internal error")                                          \
  X(DATA_LOSS, "data_loss", 15, "keywatch: data loss")                                             \
  X(UNKNOWN, "unknown", 2, "keywatch: unknown error")                                              \
  X(REGRESSED, "regressed", 9, "keywatch: the server has been set back to an older state")         \
  X(CLUSTER_CHANGED, "cluster_changed", 9, "keywatch: the server belongs to another cluster")      \
  X(UNSUPPORTED, "unsupported", 12,                                                                \
    "keywatch: the progress of this server cannot be trusted: use etcd 3.4.31, 3.5.13 or later")   \
  X(LOST, "lost", 9, "keywatch: the lease, lock or leadership is lost")                            \
  X(LOCKED, "locked", 9, "keywatch: the lock is held by another session")

typedef enum kw_error {
  KW_OK = 0,
  KW_ERR_BEFORE_FIRST_ = -64, /* the first error of the list is one more; all are negative */
#define X(name, code, status, text) KW_ERR_##name,
  KW_ERRORS(X)
#undef X
} kw_error;

typedef struct kw_error_info {
  const char *code;
  const char *text;
  int grpc_status;
} kw_error_info;

/* Returns code, text and status of an error, which is not KW_OK. The result is static. */
const kw_error_info *kw_error_describe(int rc);

/* Returns the error of a failed system call on a file: KW_ERR_NO_SPACE if its errno says that there is no room, else
 * what kw_error_storage returns. */
int kw_error_of_errno(int number);

/* Returns KW_ERR_STORAGE. The thread remembers the cause: an errno, or an error of LMDB. */
int kw_error_storage(int number);

/* Returns the last cause that the thread has remembered, and forgets it; 0 if there is none. */
int kw_error_take_number(void);

/* Returns the error with a code, the first in the list; or KW_OK if there is none. */
int kw_error_find(const char *code);

/* Returns the error that a server has answered with: the error with this text, which may be followed by a colon and a
 * cause; if there is none, the general error of the gRPC status, KW_ERR_UNKNOWN for an unknown status. */
int kw_error_recognize(int grpc_status, kw_slice text);

#endif
