/* SPDX-License-Identifier: MIT */
#include "codec/messages.h"

/* {====== How messages are written down ====== */

#define AT(record, member) offsetof(record, member)
#define NONE KW_NO_PLACE

#define FIELD(n, label, type, place)                                                               \
  .name = #label, .number = n, .kind = KW_FIELD_##type, .offset = place
#define INT64(n, label, place) FIELD(n, label, INT64, place)
#define UINT64(n, label, place) FIELD(n, label, UINT64, place)
#define UINT32(n, label, place) FIELD(n, label, UINT32, place)
#define BOOL(n, label, place) FIELD(n, label, BOOL, place)
#define BYTES(n, label, place) FIELD(n, label, BYTES, place)
#define STRING(n, label, place) FIELD(n, label, STRING, place)
#define ENUM(n, label, list, place) FIELD(n, label, ENUM, place), .names = list
#define MESSAGE(n, label, symbol, place)                                                           \
  FIELD(n, label, MESSAGE, place), .message = &kw_msg_##symbol

#define LIST .is_repeated = true
#define CHOICE .is_choice = true
#define ENCODED .is_encoded = true
#define BARE_IF(record, member) .bare = offsetof(record, member)

#define HEADER                                                                                     \
  { MESSAGE(1, header, response_header, NONE) }
#define REPLY_HEADER                                                                               \
  { FIELD(1, header, MESSAGE, 0), .message = &reply_header, .is_always = true }
#define EMPTY_HEADER                                                                               \
  { FIELD(1, header, MESSAGE, 0), .message = &empty_header, .is_always = true }

#define DESCRIPTION(symbol, label, bytes, place)                                                   \
  {                                                                                                \
    .name = #label, .fields = symbol##_fields, .n = KW_LENGTH(symbol##_fields), .size = bytes,     \
    .choice = place                                                                                \
  }
#define RECORD_MESSAGE(symbol, label, record)                                                      \
  const kw_message kw_msg_##symbol = DESCRIPTION(symbol, label, sizeof(record), NONE)
#define CHOICE_MESSAGE(symbol, label, record, member)                                              \
  const kw_message kw_msg_##symbol =                                                               \
      DESCRIPTION(symbol, label, sizeof(record), offsetof(record, member))
#define LUA_MESSAGE(symbol, label)                                                                 \
  const kw_message kw_msg_##symbol = DESCRIPTION(symbol, label, 0, NONE)
#define EMPTY(symbol, label) const kw_message kw_msg_##symbol = {.name = #label, .choice = NONE}
#define HEADER_ALONE(symbol, label)                                                                \
  const kw_message kw_msg_##symbol = {                                                             \
      .name = #label, .fields = header_fields, .n = 1, .choice = NONE}

static const kw_field header_fields[] = {HEADER};

/* Lists in records of model have the layout of a kw_repeated. */
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

/* A transaction and an operation for each depth; what the innermost operation holds; and a record in that. */
_Static_assert(KW_MAX_NESTING == 2 * (KW_MAX_TXN_NESTING + 1) + 2, "as deep as transactions");

/* The kinds of ops and replies are the numbers of their fields. */
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
static const char *const alarm_types[] = {"NONE", "NOSPACE", "CORRUPT", NULL};
static const char *const alarm_actions[] = {"GET", "ACTIVATE", "DEACTIVATE", NULL};
static const char *const downgrade_actions[] = {"VALIDATE", "ENABLE", "CANCEL", NULL};
static const char *const permission_types[] = {"READ", "WRITE", "READWRITE", NULL};
static const char *const serving_statuses[] = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                               "SERVICE_UNKNOWN", NULL};

/* }====== */

/* {====== KV ====== */

static const kw_field key_value_fields[] = {
    {BYTES(1, key, AT(kw_kv, key))},
    {INT64(2, create_revision, AT(kw_kv, create_revision))},
    {INT64(3, mod_revision, AT(kw_kv, mod_revision))},
    {INT64(4, version, AT(kw_kv, version))},
    {BYTES(5, value, AT(kw_kv, value))},
    {INT64(6, lease, AT(kw_kv, lease))},
};
RECORD_MESSAGE(key_value, KeyValue, kw_kv);

static const kw_field event_fields[] = {
    {ENUM(1, type, event_types, NONE)},
    {MESSAGE(2, kv, key_value, NONE)},
    {MESSAGE(3, prev_kv, key_value, NONE)},
};
LUA_MESSAGE(event, Event);

static const kw_field response_header_fields[] = {
    {UINT64(1, cluster_id, AT(kw_header, cluster_id))},
    {UINT64(2, member_id, AT(kw_header, member_id))},
    {INT64(3, revision, AT(kw_header, revision))},
    {UINT64(4, raft_term, AT(kw_header, raft_term))},
};
RECORD_MESSAGE(response_header, ResponseHeader, kw_header);

/* The header of a reply, which knows its revision alone. */
static const kw_field reply_header_fields[] = {
    {UINT64(1, cluster_id, NONE)},
    {UINT64(2, member_id, NONE)},
    {INT64(3, revision, AT(kw_reply, revision))},
    {UINT64(4, raft_term, NONE)},
};
static const kw_message reply_header =
    DESCRIPTION(reply_header, ResponseHeader, sizeof(kw_reply), NONE);

/* The header of a transaction inside of another: it is there, and says nothing. */
static const kw_field empty_header_fields[] = {
    {UINT64(1, cluster_id, NONE)},
    {UINT64(2, member_id, NONE)},
    {INT64(3, revision, NONE)},
    {UINT64(4, raft_term, NONE)},
};
static const kw_message empty_header =
    DESCRIPTION(empty_header, ResponseHeader, sizeof(kw_reply), NONE);

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

static const kw_field range_stream_response_fields[] = {
    {MESSAGE(1, range_response, range_response, NONE)},
};
LUA_MESSAGE(range_stream_response, RangeStreamResponse);

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
    {FIELD(4, response_txn, MESSAGE, 0), .message = &inner_txn_response, CHOICE},
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

/* What was given for another target than the one that is asked for counts as nothing. */
static void settle_compare(void *record) {
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
                                   .settle = settle_compare};

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

HEADER_ALONE(compaction_response, CompactionResponse);

EMPTY(hash_request, HashRequest);

static const kw_field hash_response_fields[] = {
    HEADER,
    {UINT32(2, hash, NONE)},
};
LUA_MESSAGE(hash_response, HashResponse);

static const kw_field hash_kv_request_fields[] = {
    {INT64(1, revision, NONE)},
};
LUA_MESSAGE(hash_kv_request, HashKVRequest);

static const kw_field hash_kv_response_fields[] = {
    HEADER,
    {UINT32(2, hash, NONE)},
    {INT64(3, compact_revision, NONE)},
    {INT64(4, hash_revision, NONE)},
};
LUA_MESSAGE(hash_kv_response, HashKVResponse);

EMPTY(snapshot_request, SnapshotRequest);

static const kw_field snapshot_response_fields[] = {
    HEADER,
    {UINT64(2, remaining_bytes, NONE)},
    {BYTES(3, blob, NONE)},
    {STRING(4, version, NONE)},
};
LUA_MESSAGE(snapshot_response, SnapshotResponse);

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

HEADER_ALONE(lease_revoke_response, LeaseRevokeResponse);

static const kw_field lease_checkpoint_fields[] = {
    {INT64(1, ID, NONE)},
    {INT64(2, remaining_TTL, NONE)},
};
LUA_MESSAGE(lease_checkpoint, LeaseCheckpoint);

static const kw_field lease_checkpoint_request_fields[] = {
    {MESSAGE(1, checkpoints, lease_checkpoint, NONE), LIST},
};
LUA_MESSAGE(lease_checkpoint_request, LeaseCheckpointRequest);

HEADER_ALONE(lease_checkpoint_response, LeaseCheckpointResponse);

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

/* {====== Cluster and Maintenance ====== */

static const kw_field member_fields[] = {
    {UINT64(1, ID, NONE)},
    {STRING(2, name, NONE)},
    {STRING(3, peerURLs, NONE), LIST},
    {STRING(4, clientURLs, NONE), LIST},
    {BOOL(5, isLearner, NONE)},
};
LUA_MESSAGE(member, Member);

static const kw_field member_add_request_fields[] = {
    {STRING(1, peerURLs, NONE), LIST},
    {BOOL(2, isLearner, NONE)},
};
LUA_MESSAGE(member_add_request, MemberAddRequest);

static const kw_field member_add_response_fields[] = {
    HEADER,
    {MESSAGE(2, member, member, NONE)},
    {MESSAGE(3, members, member, NONE), LIST},
};
LUA_MESSAGE(member_add_response, MemberAddResponse);

static const kw_field member_remove_request_fields[] = {
    {UINT64(1, ID, NONE)},
};
LUA_MESSAGE(member_remove_request, MemberRemoveRequest);

static const kw_field member_remove_response_fields[] = {
    HEADER,
    {MESSAGE(2, members, member, NONE), LIST},
};
LUA_MESSAGE(member_remove_response, MemberRemoveResponse);

static const kw_field member_update_request_fields[] = {
    {UINT64(1, ID, NONE)},
    {STRING(2, peerURLs, NONE), LIST},
};
LUA_MESSAGE(member_update_request, MemberUpdateRequest);

static const kw_field member_update_response_fields[] = {
    HEADER,
    {MESSAGE(2, members, member, NONE), LIST},
};
LUA_MESSAGE(member_update_response, MemberUpdateResponse);

static const kw_field member_list_request_fields[] = {
    {BOOL(1, linearizable, NONE)},
};
LUA_MESSAGE(member_list_request, MemberListRequest);

static const kw_field member_list_response_fields[] = {
    HEADER,
    {MESSAGE(2, members, member, NONE), LIST},
};
LUA_MESSAGE(member_list_response, MemberListResponse);

static const kw_field member_promote_request_fields[] = {
    {UINT64(1, ID, NONE)},
};
LUA_MESSAGE(member_promote_request, MemberPromoteRequest);

static const kw_field member_promote_response_fields[] = {
    HEADER,
    {MESSAGE(2, members, member, NONE), LIST},
};
LUA_MESSAGE(member_promote_response, MemberPromoteResponse);

EMPTY(defragment_request, DefragmentRequest);

HEADER_ALONE(defragment_response, DefragmentResponse);

static const kw_field move_leader_request_fields[] = {
    {UINT64(1, targetID, NONE)},
};
LUA_MESSAGE(move_leader_request, MoveLeaderRequest);

HEADER_ALONE(move_leader_response, MoveLeaderResponse);

static const kw_field alarm_request_fields[] = {
    {ENUM(1, action, alarm_actions, NONE)},
    {UINT64(2, memberID, NONE)},
    {ENUM(3, alarm, alarm_types, NONE)},
};
LUA_MESSAGE(alarm_request, AlarmRequest);

static const kw_field alarm_member_fields[] = {
    {UINT64(1, memberID, NONE)},
    {ENUM(2, alarm, alarm_types, NONE)},
};
LUA_MESSAGE(alarm_member, AlarmMember);

static const kw_field alarm_response_fields[] = {
    HEADER,
    {MESSAGE(2, alarms, alarm_member, NONE), LIST},
};
LUA_MESSAGE(alarm_response, AlarmResponse);

static const kw_field downgrade_request_fields[] = {
    {ENUM(1, action, downgrade_actions, NONE)},
    {STRING(2, version, NONE)},
};
LUA_MESSAGE(downgrade_request, DowngradeRequest);

static const kw_field downgrade_response_fields[] = {
    HEADER,
    {STRING(2, version, NONE)},
};
LUA_MESSAGE(downgrade_response, DowngradeResponse);

static const kw_field downgrade_info_fields[] = {
    {BOOL(1, enabled, NONE)},
    {STRING(2, targetVersion, NONE)},
};
LUA_MESSAGE(downgrade_info, DowngradeInfo);

EMPTY(status_request, StatusRequest);

static const kw_field status_response_fields[] = {
    HEADER,
    {STRING(2, version, NONE)},
    {INT64(3, dbSize, NONE)},
    {UINT64(4, leader, NONE)},
    {UINT64(5, raftIndex, NONE)},
    {UINT64(6, raftTerm, NONE)},
    {UINT64(7, raftAppliedIndex, NONE)},
    {STRING(8, errors, NONE), LIST},
    {INT64(9, dbSizeInUse, NONE)},
    {BOOL(10, isLearner, NONE)},
    {STRING(11, storageVersion, NONE)},
    {INT64(12, dbSizeQuota, NONE)},
    {MESSAGE(13, downgradeInfo, downgrade_info, NONE)},
};
LUA_MESSAGE(status_response, StatusResponse);

/* }====== */

/* {====== Auth ====== */

EMPTY(auth_enable_request, AuthEnableRequest);

HEADER_ALONE(auth_enable_response, AuthEnableResponse);

EMPTY(auth_disable_request, AuthDisableRequest);

HEADER_ALONE(auth_disable_response, AuthDisableResponse);

EMPTY(auth_status_request, AuthStatusRequest);

static const kw_field auth_status_response_fields[] = {
    HEADER,
    {BOOL(2, enabled, NONE)},
    {UINT64(3, authRevision, NONE)},
};
LUA_MESSAGE(auth_status_response, AuthStatusResponse);

static const kw_field authenticate_request_fields[] = {
    {STRING(1, name, NONE)},
    {STRING(2, password, NONE)},
};
LUA_MESSAGE(authenticate_request, AuthenticateRequest);

static const kw_field authenticate_response_fields[] = {
    HEADER,
    {STRING(2, token, NONE)},
};
LUA_MESSAGE(authenticate_response, AuthenticateResponse);

static const kw_field auth_user_add_request_fields[] = {
    {STRING(1, name, NONE)},
    {STRING(2, password, NONE)},
    {MESSAGE(3, options, user_add_options, NONE)},
    {STRING(4, hashedPassword, NONE)},
};
LUA_MESSAGE(auth_user_add_request, AuthUserAddRequest);

HEADER_ALONE(auth_user_add_response, AuthUserAddResponse);

static const kw_field auth_user_get_request_fields[] = {
    {STRING(1, name, NONE)},
};
LUA_MESSAGE(auth_user_get_request, AuthUserGetRequest);

static const kw_field auth_user_get_response_fields[] = {
    HEADER,
    {STRING(2, roles, NONE), LIST},
};
LUA_MESSAGE(auth_user_get_response, AuthUserGetResponse);

EMPTY(auth_user_list_request, AuthUserListRequest);

static const kw_field auth_user_list_response_fields[] = {
    HEADER,
    {STRING(2, users, NONE), LIST},
};
LUA_MESSAGE(auth_user_list_response, AuthUserListResponse);

static const kw_field auth_user_delete_request_fields[] = {
    {STRING(1, name, NONE)},
};
LUA_MESSAGE(auth_user_delete_request, AuthUserDeleteRequest);

HEADER_ALONE(auth_user_delete_response, AuthUserDeleteResponse);

static const kw_field auth_user_change_password_request_fields[] = {
    {STRING(1, name, NONE)},
    {STRING(2, password, NONE)},
    {STRING(3, hashedPassword, NONE)},
};
LUA_MESSAGE(auth_user_change_password_request, AuthUserChangePasswordRequest);

HEADER_ALONE(auth_user_change_password_response, AuthUserChangePasswordResponse);

static const kw_field auth_user_grant_role_request_fields[] = {
    {STRING(1, user, NONE)},
    {STRING(2, role, NONE)},
};
LUA_MESSAGE(auth_user_grant_role_request, AuthUserGrantRoleRequest);

HEADER_ALONE(auth_user_grant_role_response, AuthUserGrantRoleResponse);

static const kw_field auth_user_revoke_role_request_fields[] = {
    {STRING(1, name, NONE)},
    {STRING(2, role, NONE)},
};
LUA_MESSAGE(auth_user_revoke_role_request, AuthUserRevokeRoleRequest);

HEADER_ALONE(auth_user_revoke_role_response, AuthUserRevokeRoleResponse);

static const kw_field auth_role_add_request_fields[] = {
    {STRING(1, name, NONE)},
};
LUA_MESSAGE(auth_role_add_request, AuthRoleAddRequest);

HEADER_ALONE(auth_role_add_response, AuthRoleAddResponse);

static const kw_field auth_role_get_request_fields[] = {
    {STRING(1, role, NONE)},
};
LUA_MESSAGE(auth_role_get_request, AuthRoleGetRequest);

static const kw_field auth_role_get_response_fields[] = {
    HEADER,
    {MESSAGE(2, perm, permission, NONE), LIST},
};
LUA_MESSAGE(auth_role_get_response, AuthRoleGetResponse);

EMPTY(auth_role_list_request, AuthRoleListRequest);

static const kw_field auth_role_list_response_fields[] = {
    HEADER,
    {STRING(2, roles, NONE), LIST},
};
LUA_MESSAGE(auth_role_list_response, AuthRoleListResponse);

static const kw_field auth_role_delete_request_fields[] = {
    {STRING(1, role, NONE)},
};
LUA_MESSAGE(auth_role_delete_request, AuthRoleDeleteRequest);

HEADER_ALONE(auth_role_delete_response, AuthRoleDeleteResponse);

static const kw_field auth_role_grant_permission_request_fields[] = {
    {STRING(1, name, NONE)},
    {MESSAGE(2, perm, permission, NONE)},
};
LUA_MESSAGE(auth_role_grant_permission_request, AuthRoleGrantPermissionRequest);

HEADER_ALONE(auth_role_grant_permission_response, AuthRoleGrantPermissionResponse);

static const kw_field auth_role_revoke_permission_request_fields[] = {
    {STRING(1, role, NONE)},
    {BYTES(2, key, NONE)},
    {BYTES(3, range_end, NONE)},
};
LUA_MESSAGE(auth_role_revoke_permission_request, AuthRoleRevokePermissionRequest);

HEADER_ALONE(auth_role_revoke_permission_response, AuthRoleRevokePermissionResponse);

static const kw_field user_add_options_fields[] = {
    {BOOL(1, no_password, NONE)},
};
LUA_MESSAGE(user_add_options, UserAddOptions);

static const kw_field permission_fields[] = {
    {ENUM(1, permType, permission_types, NONE)},
    {BYTES(2, key, NONE)},
    {BYTES(3, range_end, NONE)},
};
LUA_MESSAGE(permission, Permission);

static const kw_field user_fields[] = {
    {BYTES(1, name, NONE)},
    {BYTES(2, password, NONE)},
    {STRING(3, roles, NONE), LIST},
    {MESSAGE(4, options, user_add_options, NONE)},
};
LUA_MESSAGE(user, User);

static const kw_field role_fields[] = {
    {BYTES(1, name, NONE)},
    {MESSAGE(2, keyPermission, permission, NONE), LIST},
};
LUA_MESSAGE(role, Role);

/* }====== */

/* {====== Lock, Election and Health ====== */

static const kw_field lock_request_fields[] = {
    {BYTES(1, name, NONE)},
    {INT64(2, lease, NONE)},
};
LUA_MESSAGE(lock_request, LockRequest);

static const kw_field lock_response_fields[] = {
    HEADER,
    {BYTES(2, key, NONE)},
};
LUA_MESSAGE(lock_response, LockResponse);

static const kw_field unlock_request_fields[] = {
    {BYTES(1, key, NONE)},
};
LUA_MESSAGE(unlock_request, UnlockRequest);

HEADER_ALONE(unlock_response, UnlockResponse);

static const kw_field campaign_request_fields[] = {
    {BYTES(1, name, NONE)},
    {INT64(2, lease, NONE)},
    {BYTES(3, value, NONE)},
};
LUA_MESSAGE(campaign_request, CampaignRequest);

static const kw_field campaign_response_fields[] = {
    HEADER,
    {MESSAGE(2, leader, leader_key, NONE)},
};
LUA_MESSAGE(campaign_response, CampaignResponse);

static const kw_field leader_key_fields[] = {
    {BYTES(1, name, NONE)},
    {BYTES(2, key, NONE)},
    {INT64(3, rev, NONE)},
    {INT64(4, lease, NONE)},
};
LUA_MESSAGE(leader_key, LeaderKey);

static const kw_field leader_request_fields[] = {
    {BYTES(1, name, NONE)},
};
LUA_MESSAGE(leader_request, LeaderRequest);

static const kw_field leader_response_fields[] = {
    HEADER,
    {MESSAGE(2, kv, key_value, NONE)},
};
LUA_MESSAGE(leader_response, LeaderResponse);

static const kw_field resign_request_fields[] = {
    {MESSAGE(1, leader, leader_key, NONE)},
};
LUA_MESSAGE(resign_request, ResignRequest);

HEADER_ALONE(resign_response, ResignResponse);

static const kw_field proclaim_request_fields[] = {
    {MESSAGE(1, leader, leader_key, NONE)},
    {BYTES(2, value, NONE)},
};
LUA_MESSAGE(proclaim_request, ProclaimRequest);

HEADER_ALONE(proclaim_response, ProclaimResponse);

static const kw_field health_check_request_fields[] = {
    {STRING(1, service, NONE)},
};
LUA_MESSAGE(health_check_request, HealthCheckRequest);

static const kw_field health_check_response_fields[] = {
    {ENUM(1, status, serving_statuses, NONE)},
};
LUA_MESSAGE(health_check_response, HealthCheckResponse);

/* }====== */

static const kw_message *const messages[] = {
#define X(symbol, name) &kw_msg_##symbol,
    KW_MESSAGES(X)
#undef X
};

const kw_message *kw_message_at(size_t i) {
  return i < KW_LENGTH(messages) ? messages[i] : NULL;
}

const kw_message *kw_message_find(const char *name) {
  for (size_t i = 0; i < KW_LENGTH(messages); i++) {
    if (strcmp(messages[i]->name, name) == 0) return messages[i];
  }
  return NULL;
}
