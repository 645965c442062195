/* SPDX-License-Identifier: MIT */
#include "codec/messages.h"

#include "codec/describe.h"

/* {====== What descriptions assume about the records of model ====== */

/* Lists have the layout of a kw_repeated. */
#define IS_LIST(record, list, count)                                                               \
  _Static_assert(offsetof(record, count) - offsetof(record, list) == offsetof(kw_repeated, n) &&   \
                     sizeof(((record *)0)->list) == sizeof(void *) &&                              \
                     sizeof(((record *)0)->count) == sizeof(size_t),                               \
                 "a list is a pointer and a count")

IS_LIST(kw_txn_op, compares, n_compares);
IS_LIST(kw_txn_op, success, n_success);
IS_LIST(kw_txn_op, failure, n_failure);
IS_LIST(kw_reply, range.kvs.items, range.kvs.n);
IS_LIST(kw_reply, delete.prev_kvs.items, delete.prev_kvs.n);
IS_LIST(kw_reply, txn.responses, txn.n);

/* Each nested transaction is two messages deep, RequestOp and TxnRequest. The innermost RequestOp holds a request,
 * and a response holds a KeyValue. */
_Static_assert(KW_MAX_NESTING == 2 * (KW_MAX_TXN_NESTING + 1) + 2, "as deep as transactions");

/* The kind of an op or a reply is the number of its field in the oneof. */
_Static_assert(KW_OP_RANGE == 1 && KW_OP_PUT == 2 && KW_OP_DELETE == 3 && KW_OP_TXN == 4,
               "as in RequestOp and ResponseOp");

/* }====== */

/* {====== Enums ====== */

static const char *const event_types[] = {"PUT", "DELETE", NULL};
static const char *const sort_orders[] = {"NONE", "ASCEND", "DESCEND", NULL};
static const char *const sort_targets[] = {"KEY", "VERSION", "CREATE", "MOD", "VALUE", NULL};
static const char *const compare_results[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL", NULL};
static const char *const compare_targets[] = {"VERSION", "CREATE", "MOD", "VALUE", "LEASE", NULL};
static const char *const watch_filters[] = {"NOPUT", "NODELETE", NULL};

/* }====== */

/* {====== KV ====== */

const kw_field kw_header_only[1] = {HEADER};

static const kw_field key_value_fields[] = {
    {BYTES(1, key, AT(kw_kv, key))},
    {INT64(2, create_revision, AT(kw_kv, create_revision))},
    {INT64(3, mod_revision, AT(kw_kv, mod_revision))},
    {INT64(4, version, AT(kw_kv, version))},
    {BYTES(5, value, AT(kw_kv, value))},
    {INT64(6, lease, AT(kw_kv, lease))},
};
RECORD_MESSAGE(key_value, KeyValue, kw_kv);

LUA_MESSAGE(event, Event, {ENUM(1, type, event_types, NONE)}, {MESSAGE(2, kv, key_value, NONE)},
            {MESSAGE(3, prev_kv, key_value, NONE)});

static const kw_field response_header_fields[] = {
    {UINT64(1, cluster_id, AT(kw_header, cluster_id))},
    {UINT64(2, member_id, AT(kw_header, member_id))},
    {INT64(3, revision, AT(kw_header, revision))},
    {UINT64(4, raft_term, AT(kw_header, raft_term))},
};
RECORD_MESSAGE(response_header, ResponseHeader, kw_header);

/* The header of a kw_reply, which has only the revision. */
static const kw_field reply_header_fields[] = {
    {UINT64(1, cluster_id, NONE)},
    {UINT64(2, member_id, NONE)},
    {INT64(3, revision, AT(kw_reply, revision))},
    {UINT64(4, raft_term, NONE)},
};
static const kw_message reply_header =
    DESCRIPTION(reply_header, ResponseHeader, sizeof(kw_reply), NONE);

/* The header of a nested transaction, which etcd writes without any field. */
static const kw_field empty_header_fields[] = {
    {UINT64(1, cluster_id, NONE)},
    {UINT64(2, member_id, NONE)},
    {INT64(3, revision, NONE)},
    {UINT64(4, raft_term, NONE)},
};
static const kw_message empty_header =
    DESCRIPTION(empty_header, ResponseHeader, sizeof(kw_reply), NONE);

#define REPLY_HEADER                                                                               \
  { NESTED(1, header, reply_header, 0), ALWAYS }
#define EMPTY_HEADER                                                                               \
  { NESTED(1, header, empty_header, 0), ALWAYS }

static const kw_field range_request_fields[] = {
    {BYTES(1, key, AT(kw_range_op, range.key))},
    {BYTES(2, range_end, AT(kw_range_op, range.end))},
    {INT64(3, limit, AT(kw_range_op, limit))},
    {INT64(4, revision, AT(kw_range_op, revision))},
    {ENUM(5, sort_order, sort_orders, AT(kw_range_op, sort_order))},
    {ENUM(6, sort_target, sort_targets, AT(kw_range_op, sort_target))},
    {BOOL(7, serializable, AT(kw_range_op, serializable))},
    {BOOL(8, keys_only, AT(kw_range_op, keys_only))},
    {BOOL(9, count_only, AT(kw_range_op, count_only))},
    {INT64(10, min_mod_revision, AT(kw_range_op, min_mod_revision))},
    {INT64(11, max_mod_revision, AT(kw_range_op, max_mod_revision))},
    {INT64(12, min_create_revision, AT(kw_range_op, min_create_revision))},
    {INT64(13, max_create_revision, AT(kw_range_op, max_create_revision))},
};
RECORD_MESSAGE(range_request, RangeRequest, kw_range_op);

static const kw_field range_response_fields[] = {
    REPLY_HEADER,
    {MESSAGE(2, kvs, key_value, AT(kw_reply, range.kvs)), LIST, ENCODED,
     BARE_IF(kw_reply, range.keys_only)},
    {BOOL(3, more, AT(kw_reply, range.more))},
    {INT64(4, count, AT(kw_reply, range.count))},
};
RECORD_MESSAGE(range_response, RangeResponse, kw_reply);

LUA_MESSAGE(range_stream_response, RangeStreamResponse,
            {MESSAGE(1, range_response, range_response, NONE)});

static const kw_field put_request_fields[] = {
    {BYTES(1, key, AT(kw_put_op, key))},
    {BYTES(2, value, AT(kw_put_op, value))},
    {INT64(3, lease, AT(kw_put_op, lease))},
    {BOOL(4, prev_kv, AT(kw_put_op, prev_kv))},
    {BOOL(5, ignore_value, AT(kw_put_op, ignore_value))},
    {BOOL(6, ignore_lease, AT(kw_put_op, ignore_lease))},
};
RECORD_MESSAGE(put_request, PutRequest, kw_put_op);

static const kw_field put_response_fields[] = {
    REPLY_HEADER,
    {MESSAGE(2, prev_kv, key_value, AT(kw_reply, put.prev_kv)), ENCODED},
};
RECORD_MESSAGE(put_response, PutResponse, kw_reply);

static const kw_field delete_range_request_fields[] = {
    {BYTES(1, key, AT(kw_delete_op, range.key))},
    {BYTES(2, range_end, AT(kw_delete_op, range.end))},
    {BOOL(3, prev_kv, AT(kw_delete_op, prev_kv))},
};
RECORD_MESSAGE(delete_range_request, DeleteRangeRequest, kw_delete_op);

static const kw_field delete_range_response_fields[] = {
    REPLY_HEADER,
    {INT64(2, deleted, AT(kw_reply, delete.deleted))},
    {MESSAGE(3, prev_kvs, key_value, AT(kw_reply, delete.prev_kvs)), LIST, ENCODED},
};
RECORD_MESSAGE(delete_range_response, DeleteRangeResponse, kw_reply);

static const kw_field request_op_fields[] = {
    {MESSAGE(1, request_range, range_request, AT(kw_op, range)), CHOICE},
    {MESSAGE(2, request_put, put_request, AT(kw_op, put)), CHOICE},
    {MESSAGE(3, request_delete_range, delete_range_request, AT(kw_op, delete)), CHOICE},
    {MESSAGE(4, request_txn, txn_request, AT(kw_op, txn)), CHOICE},
};
CHOICE_MESSAGE(request_op, RequestOp, kw_op, kind);

static const kw_field inner_txn_response_fields[] = {
    EMPTY_HEADER,
    {BOOL(2, succeeded, AT(kw_reply, txn.succeeded))},
    {MESSAGE(3, responses, response_op, AT(kw_reply, txn.responses)), LIST},
};
static const kw_message inner_txn_response =
    DESCRIPTION(inner_txn_response, TxnResponse, sizeof(kw_reply), NONE);

static const kw_field response_op_fields[] = {
    {MESSAGE(1, response_range, range_response, 0), CHOICE},
    {MESSAGE(2, response_put, put_response, 0), CHOICE},
    {MESSAGE(3, response_delete_range, delete_range_response, 0), CHOICE},
    {NESTED(4, response_txn, inner_txn_response, 0), CHOICE},
};
CHOICE_MESSAGE(response_op, ResponseOp, kw_reply, kind);

static const kw_field compare_fields[] = {
    {ENUM(1, result, compare_results, AT(kw_compare, result))},
    {ENUM(2, target, compare_targets, AT(kw_compare, target))},
    {BYTES(3, key, AT(kw_compare, range.key))},
    {INT64(4, version, AT(kw_compare, number)), CHOICE},
    {INT64(5, create_revision, AT(kw_compare, number)), CHOICE},
    {INT64(6, mod_revision, AT(kw_compare, number)), CHOICE},
    {BYTES(7, value, AT(kw_compare, value)), CHOICE},
    {INT64(8, lease, AT(kw_compare, number)), CHOICE},
    {BYTES(64, range_end, AT(kw_compare, range.end))},
};

/* If the operand is for another target than that of the compare, it counts as zero or empty, as in etcd. */
static void finish_compare(void *record) {
  kw_compare *compare = record;
  int64_t meant = KW_COMPARE_FIELD(compare->target);
  if (compare->given == 0 || compare->given == meant) return;
  compare->number = 0;
  compare->value = (kw_slice){0};
}

const kw_message kw_msg_compare = {.name = "Compare",
                                   .fields = compare_fields,
                                   .n = KW_LENGTH(compare_fields),
                                   .size = sizeof(kw_compare),
                                   .choice = offsetof(kw_compare, given),
                                   .finish = finish_compare};

static const kw_field txn_request_fields[] = {
    {MESSAGE(1, compare, compare, AT(kw_txn_op, compares)), LIST},
    {MESSAGE(2, success, request_op, AT(kw_txn_op, success)), LIST},
    {MESSAGE(3, failure, request_op, AT(kw_txn_op, failure)), LIST},
};
RECORD_MESSAGE(txn_request, TxnRequest, kw_txn_op);

static const kw_field txn_response_fields[] = {
    REPLY_HEADER,
    {BOOL(2, succeeded, AT(kw_reply, txn.succeeded))},
    {MESSAGE(3, responses, response_op, AT(kw_reply, txn.responses)), LIST},
};
RECORD_MESSAGE(txn_response, TxnResponse, kw_reply);

static const kw_field compaction_request_fields[] = {
    {INT64(1, revision, AT(kw_compaction_request, revision))},
    {BOOL(2, physical, AT(kw_compaction_request, physical))},
};
RECORD_MESSAGE(compaction_request, CompactionRequest, kw_compaction_request);

HEADER_ONLY(compaction_response, CompactionResponse);

/* }====== */

/* {====== Watch ====== */

static const kw_field watch_request_fields[] = {
    {MESSAGE(1, create_request, watch_create_request, AT(kw_watch_request, create)), CHOICE},
    {MESSAGE(2, cancel_request, watch_cancel_request, AT(kw_watch_request, cancel)), CHOICE},
    {MESSAGE(3, progress_request, watch_progress_request, 0), CHOICE},
};
CHOICE_MESSAGE(watch_request, WatchRequest, kw_watch_request, kind);

static const kw_field watch_create_request_fields[] = {
    {BYTES(1, key, AT(kw_watch_create_request, range.key))},
    {BYTES(2, range_end, AT(kw_watch_create_request, range.end))},
    {INT64(3, start_revision, AT(kw_watch_create_request, start_revision))},
    {BOOL(4, progress_notify, AT(kw_watch_create_request, progress_notify))},
    {ENUM(5, filters, watch_filters, AT(kw_watch_create_request, filters)), LIST},
    {BOOL(6, prev_kv, AT(kw_watch_create_request, prev_kv))},
    {INT64(7, watch_id, AT(kw_watch_create_request, watch_id))},
    {BOOL(8, fragment, AT(kw_watch_create_request, fragment))},
};
RECORD_MESSAGE(watch_create_request, WatchCreateRequest, kw_watch_create_request);

static const kw_field watch_cancel_request_fields[] = {
    {INT64(1, watch_id, 0)},
};
RECORD_MESSAGE(watch_cancel_request, WatchCancelRequest, int64_t);

EMPTY(watch_progress_request, WatchProgressRequest);

static const kw_field watch_response_fields[] = {
    HEADER,
    {INT64(2, watch_id, AT(kw_watch_response, watch_id))},
    {BOOL(3, created, AT(kw_watch_response, created))},
    {BOOL(4, canceled, AT(kw_watch_response, canceled))},
    {INT64(5, compact_revision, AT(kw_watch_response, compact_revision))},
    {STRING(6, cancel_reason, AT(kw_watch_response, cancel_reason))},
    {BOOL(7, fragment, AT(kw_watch_response, fragment))},
    {MESSAGE(11, events, event, NONE), LIST},
};
RECORD_MESSAGE(watch_response, WatchResponse, kw_watch_response);

/* }====== */

/* {====== Lease ====== */

static const kw_field lease_grant_request_fields[] = {
    {INT64(1, TTL, AT(kw_lease_message, ttl))},
    {INT64(2, ID, AT(kw_lease_message, id))},
};
RECORD_MESSAGE(lease_grant_request, LeaseGrantRequest, kw_lease_message);

static const kw_field lease_grant_response_fields[] = {
    HEADER,
    {INT64(2, ID, AT(kw_lease_message, id))},
    {INT64(3, TTL, AT(kw_lease_message, ttl))},
    {STRING(4, error, NONE)},
};
RECORD_MESSAGE(lease_grant_response, LeaseGrantResponse, kw_lease_message);

static const kw_field lease_revoke_request_fields[] = {
    {INT64(1, ID, AT(kw_lease_message, id))},
};
RECORD_MESSAGE(lease_revoke_request, LeaseRevokeRequest, kw_lease_message);

HEADER_ONLY(lease_revoke_response, LeaseRevokeResponse);

LUA_MESSAGE(lease_checkpoint, LeaseCheckpoint, {INT64(1, ID, NONE)},
            {INT64(2, remaining_TTL, NONE)});

LUA_MESSAGE(lease_checkpoint_request, LeaseCheckpointRequest,
            {MESSAGE(1, checkpoints, lease_checkpoint, NONE), LIST});

HEADER_ONLY(lease_checkpoint_response, LeaseCheckpointResponse);

static const kw_field lease_keep_alive_request_fields[] = {
    {INT64(1, ID, AT(kw_lease_message, id))},
};
RECORD_MESSAGE(lease_keep_alive_request, LeaseKeepAliveRequest, kw_lease_message);

static const kw_field lease_keep_alive_response_fields[] = {
    HEADER,
    {INT64(2, ID, AT(kw_lease_message, id))},
    {INT64(3, TTL, AT(kw_lease_message, ttl))},
};
RECORD_MESSAGE(lease_keep_alive_response, LeaseKeepAliveResponse, kw_lease_message);

static const kw_field lease_time_to_live_request_fields[] = {
    {INT64(1, ID, AT(kw_lease_message, id))},
    {BOOL(2, keys, AT(kw_lease_message, wants_keys))},
};
RECORD_MESSAGE(lease_time_to_live_request, LeaseTimeToLiveRequest, kw_lease_message);

static const kw_field lease_time_to_live_response_fields[] = {
    HEADER,
    {INT64(2, ID, AT(kw_lease_message, id))},
    {INT64(3, TTL, AT(kw_lease_message, ttl))},
    {INT64(4, grantedTTL, AT(kw_lease_message, granted_ttl))},
    {BYTES(5, keys, AT(kw_lease_message, keys)), LIST},
};
RECORD_MESSAGE(lease_time_to_live_response, LeaseTimeToLiveResponse, kw_lease_message);

EMPTY(lease_leases_request, LeaseLeasesRequest);

static const kw_field lease_status_fields[] = {
    {INT64(1, ID, 0)},
};
RECORD_MESSAGE(lease_status, LeaseStatus, int64_t);

static const kw_field lease_leases_response_fields[] = {
    HEADER,
    {MESSAGE(2, leases, lease_status, AT(kw_leases_response, leases)), LIST},
};
RECORD_MESSAGE(lease_leases_response, LeaseLeasesResponse, kw_leases_response);

/* }====== */

static const kw_message *const messages[] = {
#define X(symbol, name) &kw_msg_##symbol,
    KW_MESSAGES(X)
#undef X
};

const kw_message *kw_message_at(size_t i) {
  return i < KW_LENGTH(messages) ? messages[i] : NULL;
}
