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

/* }====== */

/* {====== Maintenance ====== */

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
