/* SPDX-License-Identifier: MIT
 *
 * service_messages: the messages of the services that are written in Lua: Cluster, Maintenance, Auth, Lock, Election
 * and Health. They have no records in C: bind decodes them into Lua tables.
 */
#include "codec/describe.h"
#include "codec/messages.h"

/* {====== Enums ====== */

static const char *const alarm_types[] = {"NONE", "NOSPACE", "CORRUPT", NULL};
static const char *const alarm_actions[] = {"GET", "ACTIVATE", "DEACTIVATE", NULL};
static const char *const downgrade_actions[] = {"VALIDATE", "ENABLE", "CANCEL", NULL};
static const char *const permission_types[] = {"READ", "WRITE", "READWRITE", NULL};
static const char *const serving_statuses[] = {"UNKNOWN", "SERVING", "NOT_SERVING",
                                               "SERVICE_UNKNOWN", NULL};

/* }====== */

/* {====== Cluster ====== */

LUA_MESSAGE(member, Member, {UINT64(1, ID, NONE)}, {STRING(2, name, NONE)},
            {STRING(3, peerURLs, NONE), LIST}, {STRING(4, clientURLs, NONE), LIST},
            {BOOL(5, isLearner, NONE)});

LUA_MESSAGE(member_add_request, MemberAddRequest, {STRING(1, peerURLs, NONE), LIST},
            {BOOL(2, isLearner, NONE)});

LUA_MESSAGE(member_add_response, MemberAddResponse, HEADER, {MESSAGE(2, member, member, NONE)},
            {MESSAGE(3, members, member, NONE), LIST});

LUA_MESSAGE(member_remove_request, MemberRemoveRequest, {UINT64(1, ID, NONE)});

LUA_MESSAGE(member_remove_response, MemberRemoveResponse, HEADER,
            {MESSAGE(2, members, member, NONE), LIST});

LUA_MESSAGE(member_update_request, MemberUpdateRequest, {UINT64(1, ID, NONE)},
            {STRING(2, peerURLs, NONE), LIST});

LUA_MESSAGE(member_update_response, MemberUpdateResponse, HEADER,
            {MESSAGE(2, members, member, NONE), LIST});

LUA_MESSAGE(member_list_request, MemberListRequest, {BOOL(1, linearizable, NONE)});

LUA_MESSAGE(member_list_response, MemberListResponse, HEADER,
            {MESSAGE(2, members, member, NONE), LIST});

LUA_MESSAGE(member_promote_request, MemberPromoteRequest, {UINT64(1, ID, NONE)});

LUA_MESSAGE(member_promote_response, MemberPromoteResponse, HEADER,
            {MESSAGE(2, members, member, NONE), LIST});

/* }====== */

/* {====== Maintenance ====== */

EMPTY(hash_request, HashRequest);

LUA_MESSAGE(hash_response, HashResponse, HEADER, {UINT32(2, hash, NONE)});

LUA_MESSAGE(hash_kv_request, HashKVRequest, {INT64(1, revision, NONE)});

LUA_MESSAGE(hash_kv_response, HashKVResponse, HEADER, {UINT32(2, hash, NONE)},
            {INT64(3, compact_revision, NONE)}, {INT64(4, hash_revision, NONE)});

EMPTY(snapshot_request, SnapshotRequest);

LUA_MESSAGE(snapshot_response, SnapshotResponse, HEADER, {UINT64(2, remaining_bytes, NONE)},
            {BYTES(3, blob, NONE)}, {STRING(4, version, NONE)});

EMPTY(defragment_request, DefragmentRequest);

HEADER_ONLY(defragment_response, DefragmentResponse);

LUA_MESSAGE(move_leader_request, MoveLeaderRequest, {UINT64(1, targetID, NONE)});

HEADER_ONLY(move_leader_response, MoveLeaderResponse);

LUA_MESSAGE(alarm_request, AlarmRequest, {ENUM(1, action, alarm_actions, NONE)},
            {UINT64(2, memberID, NONE)}, {ENUM(3, alarm, alarm_types, NONE)});

LUA_MESSAGE(alarm_member, AlarmMember, {UINT64(1, memberID, NONE)},
            {ENUM(2, alarm, alarm_types, NONE)});

LUA_MESSAGE(alarm_response, AlarmResponse, HEADER, {MESSAGE(2, alarms, alarm_member, NONE), LIST});

LUA_MESSAGE(downgrade_request, DowngradeRequest, {ENUM(1, action, downgrade_actions, NONE)},
            {STRING(2, version, NONE)});

LUA_MESSAGE(downgrade_response, DowngradeResponse, HEADER, {STRING(2, version, NONE)});

LUA_MESSAGE(downgrade_info, DowngradeInfo, {BOOL(1, enabled, NONE)},
            {STRING(2, targetVersion, NONE)});

EMPTY(status_request, StatusRequest);

LUA_MESSAGE(status_response, StatusResponse, HEADER, {STRING(2, version, NONE)},
            {INT64(3, dbSize, NONE)}, {UINT64(4, leader, NONE)}, {UINT64(5, raftIndex, NONE)},
            {UINT64(6, raftTerm, NONE)}, {UINT64(7, raftAppliedIndex, NONE)},
            {STRING(8, errors, NONE), LIST}, {INT64(9, dbSizeInUse, NONE)},
            {BOOL(10, isLearner, NONE)}, {STRING(11, storageVersion, NONE)},
            {INT64(12, dbSizeQuota, NONE)}, {MESSAGE(13, downgradeInfo, downgrade_info, NONE)});

/* }====== */

/* {====== Auth ====== */

EMPTY(auth_enable_request, AuthEnableRequest);

HEADER_ONLY(auth_enable_response, AuthEnableResponse);

EMPTY(auth_disable_request, AuthDisableRequest);

HEADER_ONLY(auth_disable_response, AuthDisableResponse);

EMPTY(auth_status_request, AuthStatusRequest);

LUA_MESSAGE(auth_status_response, AuthStatusResponse, HEADER, {BOOL(2, enabled, NONE)},
            {UINT64(3, authRevision, NONE)});

LUA_MESSAGE(authenticate_request, AuthenticateRequest, {STRING(1, name, NONE)},
            {STRING(2, password, NONE)});

LUA_MESSAGE(authenticate_response, AuthenticateResponse, HEADER, {STRING(2, token, NONE)});

LUA_MESSAGE(auth_user_add_request, AuthUserAddRequest, {STRING(1, name, NONE)},
            {STRING(2, password, NONE)}, {MESSAGE(3, options, user_add_options, NONE)},
            {STRING(4, hashedPassword, NONE)});

HEADER_ONLY(auth_user_add_response, AuthUserAddResponse);

LUA_MESSAGE(auth_user_get_request, AuthUserGetRequest, {STRING(1, name, NONE)});

LUA_MESSAGE(auth_user_get_response, AuthUserGetResponse, HEADER, {STRING(2, roles, NONE), LIST});

EMPTY(auth_user_list_request, AuthUserListRequest);

LUA_MESSAGE(auth_user_list_response, AuthUserListResponse, HEADER, {STRING(2, users, NONE), LIST});

LUA_MESSAGE(auth_user_delete_request, AuthUserDeleteRequest, {STRING(1, name, NONE)});

HEADER_ONLY(auth_user_delete_response, AuthUserDeleteResponse);

LUA_MESSAGE(auth_user_change_password_request, AuthUserChangePasswordRequest,
            {STRING(1, name, NONE)}, {STRING(2, password, NONE)},
            {STRING(3, hashedPassword, NONE)});

HEADER_ONLY(auth_user_change_password_response, AuthUserChangePasswordResponse);

LUA_MESSAGE(auth_user_grant_role_request, AuthUserGrantRoleRequest, {STRING(1, user, NONE)},
            {STRING(2, role, NONE)});

HEADER_ONLY(auth_user_grant_role_response, AuthUserGrantRoleResponse);

LUA_MESSAGE(auth_user_revoke_role_request, AuthUserRevokeRoleRequest, {STRING(1, name, NONE)},
            {STRING(2, role, NONE)});

HEADER_ONLY(auth_user_revoke_role_response, AuthUserRevokeRoleResponse);

LUA_MESSAGE(auth_role_add_request, AuthRoleAddRequest, {STRING(1, name, NONE)});

HEADER_ONLY(auth_role_add_response, AuthRoleAddResponse);

LUA_MESSAGE(auth_role_get_request, AuthRoleGetRequest, {STRING(1, role, NONE)});

LUA_MESSAGE(auth_role_get_response, AuthRoleGetResponse, HEADER,
            {MESSAGE(2, perm, permission, NONE), LIST});

EMPTY(auth_role_list_request, AuthRoleListRequest);

LUA_MESSAGE(auth_role_list_response, AuthRoleListResponse, HEADER, {STRING(2, roles, NONE), LIST});

LUA_MESSAGE(auth_role_delete_request, AuthRoleDeleteRequest, {STRING(1, role, NONE)});

HEADER_ONLY(auth_role_delete_response, AuthRoleDeleteResponse);

LUA_MESSAGE(auth_role_grant_permission_request, AuthRoleGrantPermissionRequest,
            {STRING(1, name, NONE)}, {MESSAGE(2, perm, permission, NONE)});

HEADER_ONLY(auth_role_grant_permission_response, AuthRoleGrantPermissionResponse);

LUA_MESSAGE(auth_role_revoke_permission_request, AuthRoleRevokePermissionRequest,
            {STRING(1, role, NONE)}, {BYTES(2, key, NONE)}, {BYTES(3, range_end, NONE)});

HEADER_ONLY(auth_role_revoke_permission_response, AuthRoleRevokePermissionResponse);

LUA_MESSAGE(user_add_options, UserAddOptions, {BOOL(1, no_password, NONE)});

LUA_MESSAGE(permission, Permission, {ENUM(1, permType, permission_types, NONE)},
            {BYTES(2, key, NONE)}, {BYTES(3, range_end, NONE)});

LUA_MESSAGE(user, User, {BYTES(1, name, NONE)}, {BYTES(2, password, NONE)},
            {STRING(3, roles, NONE), LIST}, {MESSAGE(4, options, user_add_options, NONE)});

LUA_MESSAGE(role, Role, {BYTES(1, name, NONE)},
            {MESSAGE(2, keyPermission, permission, NONE), LIST});

/* }====== */

/* {====== Lock, Election and Health ====== */

LUA_MESSAGE(lock_request, LockRequest, {BYTES(1, name, NONE)}, {INT64(2, lease, NONE)});

LUA_MESSAGE(lock_response, LockResponse, HEADER, {BYTES(2, key, NONE)});

LUA_MESSAGE(unlock_request, UnlockRequest, {BYTES(1, key, NONE)});

HEADER_ONLY(unlock_response, UnlockResponse);

LUA_MESSAGE(campaign_request, CampaignRequest, {BYTES(1, name, NONE)}, {INT64(2, lease, NONE)},
            {BYTES(3, value, NONE)});

LUA_MESSAGE(campaign_response, CampaignResponse, HEADER, {MESSAGE(2, leader, leader_key, NONE)});

LUA_MESSAGE(leader_key, LeaderKey, {BYTES(1, name, NONE)}, {BYTES(2, key, NONE)},
            {INT64(3, rev, NONE)}, {INT64(4, lease, NONE)});

LUA_MESSAGE(leader_request, LeaderRequest, {BYTES(1, name, NONE)});

LUA_MESSAGE(leader_response, LeaderResponse, HEADER, {MESSAGE(2, kv, key_value, NONE)});

LUA_MESSAGE(resign_request, ResignRequest, {MESSAGE(1, leader, leader_key, NONE)});

HEADER_ONLY(resign_response, ResignResponse);

LUA_MESSAGE(proclaim_request, ProclaimRequest, {MESSAGE(1, leader, leader_key, NONE)},
            {BYTES(2, value, NONE)});

HEADER_ONLY(proclaim_response, ProclaimResponse);

LUA_MESSAGE(health_check_request, HealthCheckRequest, {STRING(1, service, NONE)});

LUA_MESSAGE(health_check_response, HealthCheckResponse, {ENUM(1, status, serving_statuses, NONE)});

/* }====== */
