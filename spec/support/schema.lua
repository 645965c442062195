--- Every message of etcd's API, as a second, independent definition: number, name and type of each field.
--
-- A star marks a repeated field, a question mark a member of the message's oneof.

local ENUMS = [[
EventType: PUT DELETE
SortOrder: NONE ASCEND DESCEND
SortTarget: KEY VERSION CREATE MOD VALUE
CompareResult: EQUAL GREATER LESS NOT_EQUAL
CompareTarget: VERSION CREATE MOD VALUE LEASE
FilterType: NOPUT NODELETE
AlarmType: NONE NOSPACE CORRUPT
AlarmAction: GET ACTIVATE DEACTIVATE
DowngradeAction: VALIDATE ENABLE CANCEL
PermissionType: READ WRITE READWRITE
ServingStatus: UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN
]]

local MESSAGES = [[
KeyValue: 1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes, 6 lease int64
Event: 1 type EventType, 2 kv KeyValue, 3 prev_kv KeyValue
ResponseHeader: 1 cluster_id uint64, 2 member_id uint64, 3 revision int64, 4 raft_term uint64
RangeRequest: 1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 5 sort_order SortOrder,
    6 sort_target SortTarget, 7 serializable bool, 8 keys_only bool, 9 count_only bool, 10 min_mod_revision int64,
    11 max_mod_revision int64, 12 min_create_revision int64, 13 max_create_revision int64
RangeResponse: 1 header ResponseHeader, 2 kvs KeyValue*, 3 more bool, 4 count int64
RangeStreamResponse: 1 range_response RangeResponse
PutRequest: 1 key bytes, 2 value bytes, 3 lease int64, 4 prev_kv bool, 5 ignore_value bool, 6 ignore_lease bool
PutResponse: 1 header ResponseHeader, 2 prev_kv KeyValue
DeleteRangeRequest: 1 key bytes, 2 range_end bytes, 3 prev_kv bool
DeleteRangeResponse: 1 header ResponseHeader, 2 deleted int64, 3 prev_kvs KeyValue*
RequestOp: 1 request_range RangeRequest?, 2 request_put PutRequest?, 3 request_delete_range DeleteRangeRequest?,
    4 request_txn TxnRequest?
ResponseOp: 1 response_range RangeResponse?, 2 response_put PutResponse?,
    3 response_delete_range DeleteRangeResponse?, 4 response_txn TxnResponse?
Compare: 1 result CompareResult, 2 target CompareTarget, 3 key bytes, 4 version int64?, 5 create_revision int64?,
    6 mod_revision int64?, 7 value bytes?, 8 lease int64?, 64 range_end bytes
TxnRequest: 1 compare Compare*, 2 success RequestOp*, 3 failure RequestOp*
TxnResponse: 1 header ResponseHeader, 2 succeeded bool, 3 responses ResponseOp*
CompactionRequest: 1 revision int64, 2 physical bool
CompactionResponse: 1 header ResponseHeader
HashRequest:
HashResponse: 1 header ResponseHeader, 2 hash uint32
HashKVRequest: 1 revision int64
HashKVResponse: 1 header ResponseHeader, 2 hash uint32, 3 compact_revision int64, 4 hash_revision int64
SnapshotRequest:
SnapshotResponse: 1 header ResponseHeader, 2 remaining_bytes uint64, 3 blob bytes, 4 version string
WatchRequest: 1 create_request WatchCreateRequest?, 2 cancel_request WatchCancelRequest?,
    3 progress_request WatchProgressRequest?
WatchCreateRequest: 1 key bytes, 2 range_end bytes, 3 start_revision int64, 4 progress_notify bool,
    5 filters FilterType*, 6 prev_kv bool, 7 watch_id int64, 8 fragment bool
WatchCancelRequest: 1 watch_id int64
WatchProgressRequest:
WatchResponse: 1 header ResponseHeader, 2 watch_id int64, 3 created bool, 4 canceled bool, 5 compact_revision int64,
    6 cancel_reason string, 7 fragment bool, 11 events Event*
LeaseGrantRequest: 1 TTL int64, 2 ID int64
LeaseGrantResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 error string
LeaseRevokeRequest: 1 ID int64
LeaseRevokeResponse: 1 header ResponseHeader
LeaseCheckpoint: 1 ID int64, 2 remaining_TTL int64
LeaseCheckpointRequest: 1 checkpoints LeaseCheckpoint*
LeaseCheckpointResponse: 1 header ResponseHeader
LeaseKeepAliveRequest: 1 ID int64
LeaseKeepAliveResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64
LeaseTimeToLiveRequest: 1 ID int64, 2 keys bool
LeaseTimeToLiveResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 grantedTTL int64, 5 keys bytes*
LeaseLeasesRequest:
LeaseStatus: 1 ID int64
LeaseLeasesResponse: 1 header ResponseHeader, 2 leases LeaseStatus*
Member: 1 ID uint64, 2 name string, 3 peerURLs string*, 4 clientURLs string*, 5 isLearner bool
MemberAddRequest: 1 peerURLs string*, 2 isLearner bool
MemberAddResponse: 1 header ResponseHeader, 2 member Member, 3 members Member*
MemberRemoveRequest: 1 ID uint64
MemberRemoveResponse: 1 header ResponseHeader, 2 members Member*
MemberUpdateRequest: 1 ID uint64, 2 peerURLs string*
MemberUpdateResponse: 1 header ResponseHeader, 2 members Member*
MemberListRequest: 1 linearizable bool
MemberListResponse: 1 header ResponseHeader, 2 members Member*
MemberPromoteRequest: 1 ID uint64
MemberPromoteResponse: 1 header ResponseHeader, 2 members Member*
DefragmentRequest:
DefragmentResponse: 1 header ResponseHeader
MoveLeaderRequest: 1 targetID uint64
MoveLeaderResponse: 1 header ResponseHeader
AlarmRequest: 1 action AlarmAction, 2 memberID uint64, 3 alarm AlarmType
AlarmMember: 1 memberID uint64, 2 alarm AlarmType
AlarmResponse: 1 header ResponseHeader, 2 alarms AlarmMember*
DowngradeRequest: 1 action DowngradeAction, 2 version string
DowngradeResponse: 1 header ResponseHeader, 2 version string
DowngradeInfo: 1 enabled bool, 2 targetVersion string
StatusRequest:
StatusResponse: 1 header ResponseHeader, 2 version string, 3 dbSize int64, 4 leader uint64, 5 raftIndex uint64,
    6 raftTerm uint64, 7 raftAppliedIndex uint64, 8 errors string*, 9 dbSizeInUse int64, 10 isLearner bool,
    11 storageVersion string, 12 dbSizeQuota int64, 13 downgradeInfo DowngradeInfo
AuthEnableRequest:
AuthEnableResponse: 1 header ResponseHeader
AuthDisableRequest:
AuthDisableResponse: 1 header ResponseHeader
AuthStatusRequest:
AuthStatusResponse: 1 header ResponseHeader, 2 enabled bool, 3 authRevision uint64
AuthenticateRequest: 1 name string, 2 password string
AuthenticateResponse: 1 header ResponseHeader, 2 token string
AuthUserAddRequest: 1 name string, 2 password string, 3 options UserAddOptions, 4 hashedPassword string
AuthUserAddResponse: 1 header ResponseHeader
AuthUserGetRequest: 1 name string
AuthUserGetResponse: 1 header ResponseHeader, 2 roles string*
AuthUserListRequest:
AuthUserListResponse: 1 header ResponseHeader, 2 users string*
AuthUserDeleteRequest: 1 name string
AuthUserDeleteResponse: 1 header ResponseHeader
AuthUserChangePasswordRequest: 1 name string, 2 password string, 3 hashedPassword string
AuthUserChangePasswordResponse: 1 header ResponseHeader
AuthUserGrantRoleRequest: 1 user string, 2 role string
AuthUserGrantRoleResponse: 1 header ResponseHeader
AuthUserRevokeRoleRequest: 1 name string, 2 role string
AuthUserRevokeRoleResponse: 1 header ResponseHeader
AuthRoleAddRequest: 1 name string
AuthRoleAddResponse: 1 header ResponseHeader
AuthRoleGetRequest: 1 role string
AuthRoleGetResponse: 1 header ResponseHeader, 2 perm Permission*
AuthRoleListRequest:
AuthRoleListResponse: 1 header ResponseHeader, 2 roles string*
AuthRoleDeleteRequest: 1 role string
AuthRoleDeleteResponse: 1 header ResponseHeader
AuthRoleGrantPermissionRequest: 1 name string, 2 perm Permission
AuthRoleGrantPermissionResponse: 1 header ResponseHeader
AuthRoleRevokePermissionRequest: 1 role string, 2 key bytes, 3 range_end bytes
AuthRoleRevokePermissionResponse: 1 header ResponseHeader
UserAddOptions: 1 no_password bool
Permission: 1 permType PermissionType, 2 key bytes, 3 range_end bytes
User: 1 name bytes, 2 password bytes, 3 roles string*, 4 options UserAddOptions
Role: 1 name bytes, 2 keyPermission Permission*
LockRequest: 1 name bytes, 2 lease int64
LockResponse: 1 header ResponseHeader, 2 key bytes
UnlockRequest: 1 key bytes
UnlockResponse: 1 header ResponseHeader
CampaignRequest: 1 name bytes, 2 lease int64, 3 value bytes
CampaignResponse: 1 header ResponseHeader, 2 leader LeaderKey
LeaderKey: 1 name bytes, 2 key bytes, 3 rev int64, 4 lease int64
LeaderRequest: 1 name bytes
LeaderResponse: 1 header ResponseHeader, 2 kv KeyValue
ResignRequest: 1 leader LeaderKey
ResignResponse: 1 header ResponseHeader
ProclaimRequest: 1 leader LeaderKey, 2 value bytes
ProclaimResponse: 1 header ResponseHeader
HealthCheckRequest: 1 service string
HealthCheckResponse: 1 status ServingStatus
]]

local function read_enums()
  local enums = {}
  for name, values in ENUMS:gmatch("(%w+):([^\n]*)\n") do
    enums[name] = {}
    for value in values:gmatch("%S+") do table.insert(enums[name], value) end
  end
  return enums
end

local function read_fields(text)
  local fields = {}
  for number, name, type, mark in text:gmatch("(%d+) ([%w_]+) (%w+)([*?]?)") do
    fields[#fields + 1] = { number = tonumber(number), name = name, type = type, is_list = mark == "*",
      is_choice = mark == "?" }
  end
  return fields
end

local function read_messages()
  local messages, names = {}, {}
  for name, text in MESSAGES:gsub("\n +", " "):gmatch("(%w+):([^\n]*)\n") do
    messages[name] = read_fields(text)
    names[#names + 1] = name
  end
  return messages, names
end

local messages, names = read_messages()

return { enums = read_enums(), messages = messages, names = names }
