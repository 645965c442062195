/* SPDX-License-Identifier: MIT
 *
 * messages: descriptions of all messages of etcd's API, and the records of the messages that C reads or writes.
 *
 *   message                                   record
 *   RangeRequest, PutRequest                  kw_range_op, kw_put_op
 *   DeleteRangeRequest, TxnRequest            kw_delete_op, kw_txn_op
 *   RequestOp, Compare                        kw_op, kw_compare
 *   RangeResponse, PutResponse, TxnResponse,  kw_reply, whose header has only a revision, as in etcd's answers
 *   DeleteRangeResponse, ResponseOp           inside a transaction
 *   the others with a record                  the structs below; those of answers are without their header
 *
 * messages.c describes KV, Watch and Lease; service_messages.c describes the services that are written in Lua.
 */
#ifndef KW_CODEC_MESSAGES_H
#define KW_CODEC_MESSAGES_H

#include "codec/message.h"
#include "model/kv.h"
#include "model/op.h"
#include "model/reply.h"

typedef struct kw_header {
  int64_t cluster_id;
  int64_t member_id;
  int64_t revision;
  int64_t raft_term;
} kw_header;

/* The number of the field of a Compare with the operand for a target. */
#define KW_COMPARE_FIELD(target) ((int64_t)(target) + 4)

typedef struct kw_compaction_request {
  int64_t revision;
  bool physical; /* the answer waits until the records are removed */
} kw_compaction_request;

typedef struct kw_watch_create_request {
  kw_range range;
  int64_t start_revision; /* 0: the watch begins after the current revision */
  bool progress_notify;   /* an idle watch gets answers with a revision and no events */
  kw_repeated filters;    /* of int: 0 leaves out puts, 1 leaves out deletes */
  bool prev_kv;
  int64_t watch_id; /* 0: the server chooses it */
  bool fragment;    /* the server may split a large answer */
} kw_watch_create_request;

typedef enum kw_watch_request_kind {
  KW_WATCH_CREATE = 1,
  KW_WATCH_CANCEL = 2,
  KW_WATCH_PROGRESS = 3
} kw_watch_request_kind;

typedef struct kw_watch_request {
  int kind; /* kw_watch_request_kind; 0: an empty request */
  kw_watch_create_request create;
  int64_t cancel; /* watch id */
} kw_watch_request;

/* A WatchResponse without its events, which are the last field of the message and are written after this record. */
typedef struct kw_watch_response {
  int64_t watch_id;
  bool created;
  bool canceled;
  int64_t compact_revision; /* of a watch that is canceled since its start was compacted; else 0 */
  kw_slice cancel_reason;
  bool fragment; /* the rest of the same answer follows in other messages */
} kw_watch_response;

/* All requests about one lease, and the answers to grant, keep-alive and time-to-live. */
typedef struct kw_lease_message {
  int64_t id;
  int64_t ttl;         /* seconds */
  int64_t granted_ttl; /* seconds */
  bool wants_keys;
  kw_repeated keys; /* of kw_slice */
} kw_lease_message;

typedef struct kw_leases_response {
  kw_repeated leases; /* of int64_t */
} kw_leases_response;

/* All messages, including those only for Lua. X(symbol, name): kw_msg_<symbol> describes the message <name>. */
#define KW_MESSAGES(X)                                                                             \
  X(key_value, KeyValue)                                                                           \
  X(event, Event)                                                                                  \
  X(response_header, ResponseHeader)                                                               \
  X(range_request, RangeRequest)                                                                   \
  X(range_response, RangeResponse)                                                                 \
  X(range_stream_response, RangeStreamResponse)                                                    \
  X(put_request, PutRequest)                                                                       \
  X(put_response, PutResponse)                                                                     \
  X(delete_range_request, DeleteRangeRequest)                                                      \
  X(delete_range_response, DeleteRangeResponse)                                                    \
  X(request_op, RequestOp)                                                                         \
  X(response_op, ResponseOp)                                                                       \
  X(compare, Compare)                                                                              \
  X(txn_request, TxnRequest)                                                                       \
  X(txn_response, TxnResponse)                                                                     \
  X(compaction_request, CompactionRequest)                                                         \
  X(compaction_response, CompactionResponse)                                                       \
  X(hash_request, HashRequest)                                                                     \
  X(hash_response, HashResponse)                                                                   \
  X(hash_kv_request, HashKVRequest)                                                                \
  X(hash_kv_response, HashKVResponse)                                                              \
  X(snapshot_request, SnapshotRequest)                                                             \
  X(snapshot_response, SnapshotResponse)                                                           \
  X(watch_request, WatchRequest)                                                                   \
  X(watch_create_request, WatchCreateRequest)                                                      \
  X(watch_cancel_request, WatchCancelRequest)                                                      \
  X(watch_progress_request, WatchProgressRequest)                                                  \
  X(watch_response, WatchResponse)                                                                 \
  X(lease_grant_request, LeaseGrantRequest)                                                        \
  X(lease_grant_response, LeaseGrantResponse)                                                      \
  X(lease_revoke_request, LeaseRevokeRequest)                                                      \
  X(lease_revoke_response, LeaseRevokeResponse)                                                    \
  X(lease_checkpoint, LeaseCheckpoint)                                                             \
  X(lease_checkpoint_request, LeaseCheckpointRequest)                                              \
  X(lease_checkpoint_response, LeaseCheckpointResponse)                                            \
  X(lease_keep_alive_request, LeaseKeepAliveRequest)                                               \
  X(lease_keep_alive_response, LeaseKeepAliveResponse)                                             \
  X(lease_time_to_live_request, LeaseTimeToLiveRequest)                                            \
  X(lease_time_to_live_response, LeaseTimeToLiveResponse)                                          \
  X(lease_leases_request, LeaseLeasesRequest)                                                      \
  X(lease_status, LeaseStatus)                                                                     \
  X(lease_leases_response, LeaseLeasesResponse)                                                    \
  X(member, Member)                                                                                \
  X(member_add_request, MemberAddRequest)                                                          \
  X(member_add_response, MemberAddResponse)                                                        \
  X(member_remove_request, MemberRemoveRequest)                                                    \
  X(member_remove_response, MemberRemoveResponse)                                                  \
  X(member_update_request, MemberUpdateRequest)                                                    \
  X(member_update_response, MemberUpdateResponse)                                                  \
  X(member_list_request, MemberListRequest)                                                        \
  X(member_list_response, MemberListResponse)                                                      \
  X(member_promote_request, MemberPromoteRequest)                                                  \
  X(member_promote_response, MemberPromoteResponse)                                                \
  X(defragment_request, DefragmentRequest)                                                         \
  X(defragment_response, DefragmentResponse)                                                       \
  X(move_leader_request, MoveLeaderRequest)                                                        \
  X(move_leader_response, MoveLeaderResponse)                                                      \
  X(alarm_request, AlarmRequest)                                                                   \
  X(alarm_member, AlarmMember)                                                                     \
  X(alarm_response, AlarmResponse)                                                                 \
  X(downgrade_request, DowngradeRequest)                                                           \
  X(downgrade_response, DowngradeResponse)                                                         \
  X(downgrade_info, DowngradeInfo)                                                                 \
  X(status_request, StatusRequest)                                                                 \
  X(status_response, StatusResponse)                                                               \
  X(auth_enable_request, AuthEnableRequest)                                                        \
  X(auth_enable_response, AuthEnableResponse)                                                      \
  X(auth_disable_request, AuthDisableRequest)                                                      \
  X(auth_disable_response, AuthDisableResponse)                                                    \
  X(auth_status_request, AuthStatusRequest)                                                        \
  X(auth_status_response, AuthStatusResponse)                                                      \
  X(authenticate_request, AuthenticateRequest)                                                     \
  X(authenticate_response, AuthenticateResponse)                                                   \
  X(auth_user_add_request, AuthUserAddRequest)                                                     \
  X(auth_user_add_response, AuthUserAddResponse)                                                   \
  X(auth_user_get_request, AuthUserGetRequest)                                                     \
  X(auth_user_get_response, AuthUserGetResponse)                                                   \
  X(auth_user_list_request, AuthUserListRequest)                                                   \
  X(auth_user_list_response, AuthUserListResponse)                                                 \
  X(auth_user_delete_request, AuthUserDeleteRequest)                                               \
  X(auth_user_delete_response, AuthUserDeleteResponse)                                             \
  X(auth_user_change_password_request, AuthUserChangePasswordRequest)                              \
  X(auth_user_change_password_response, AuthUserChangePasswordResponse)                            \
  X(auth_user_grant_role_request, AuthUserGrantRoleRequest)                                        \
  X(auth_user_grant_role_response, AuthUserGrantRoleResponse)                                      \
  X(auth_user_revoke_role_request, AuthUserRevokeRoleRequest)                                      \
  X(auth_user_revoke_role_response, AuthUserRevokeRoleResponse)                                    \
  X(auth_role_add_request, AuthRoleAddRequest)                                                     \
  X(auth_role_add_response, AuthRoleAddResponse)                                                   \
  X(auth_role_get_request, AuthRoleGetRequest)                                                     \
  X(auth_role_get_response, AuthRoleGetResponse)                                                   \
  X(auth_role_list_request, AuthRoleListRequest)                                                   \
  X(auth_role_list_response, AuthRoleListResponse)                                                 \
  X(auth_role_delete_request, AuthRoleDeleteRequest)                                               \
  X(auth_role_delete_response, AuthRoleDeleteResponse)                                             \
  X(auth_role_grant_permission_request, AuthRoleGrantPermissionRequest)                            \
  X(auth_role_grant_permission_response, AuthRoleGrantPermissionResponse)                          \
  X(auth_role_revoke_permission_request, AuthRoleRevokePermissionRequest)                          \
  X(auth_role_revoke_permission_response, AuthRoleRevokePermissionResponse)                        \
  X(user_add_options, UserAddOptions)                                                              \
  X(permission, Permission)                                                                        \
  X(user, User)                                                                                    \
  X(role, Role)                                                                                    \
  X(lock_request, LockRequest)                                                                     \
  X(lock_response, LockResponse)                                                                   \
  X(unlock_request, UnlockRequest)                                                                 \
  X(unlock_response, UnlockResponse)                                                               \
  X(campaign_request, CampaignRequest)                                                             \
  X(campaign_response, CampaignResponse)                                                           \
  X(leader_key, LeaderKey)                                                                         \
  X(leader_request, LeaderRequest)                                                                 \
  X(leader_response, LeaderResponse)                                                               \
  X(resign_request, ResignRequest)                                                                 \
  X(resign_response, ResignResponse)                                                               \
  X(proclaim_request, ProclaimRequest)                                                             \
  X(proclaim_response, ProclaimResponse)                                                           \
  X(health_check_request, HealthCheckRequest)                                                      \
  X(health_check_response, HealthCheckResponse)

#define X(symbol, name) extern const kw_message kw_msg_##symbol;
KW_MESSAGES(X)
#undef X

/* Returns the i-th description of the list, counted from 0, or NULL after the last. */
const kw_message *kw_message_at(size_t i);

#endif
