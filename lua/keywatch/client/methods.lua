-- SPDX-License-Identifier: MIT
--- methods: the methods of etcd's API, by their paths: { request = name of the message, answer = name of the message,
-- is_read = whether the method changes nothing }. Methods that a server has beyond these take and give bytes.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local methods = {}

--- Adds methods of a service: name = "REQUEST ANSWER", or "REQUEST ANSWER reads".
local function add(service, list)
  for name, what in pairs(list) do
    local request, answer, is_read = what:match("^(%S+) (%S+)(.*)$")
    methods["/" .. service .. "/" .. name] = { request = request, answer = answer, is_read = is_read ~= "" }
  end
end

add("etcdserverpb.KV", {
  Range = "RangeRequest RangeResponse reads",
  RangeStream = "RangeRequest RangeStreamResponse reads",
  Put = "PutRequest PutResponse",
  DeleteRange = "DeleteRangeRequest DeleteRangeResponse",
  Txn = "TxnRequest TxnResponse",
  Compact = "CompactionRequest CompactionResponse",
})
add("etcdserverpb.Watch", { Watch = "WatchRequest WatchResponse" })
add("etcdserverpb.Lease", {
  LeaseGrant = "LeaseGrantRequest LeaseGrantResponse",
  LeaseRevoke = "LeaseRevokeRequest LeaseRevokeResponse",
  LeaseKeepAlive = "LeaseKeepAliveRequest LeaseKeepAliveResponse",
  LeaseTimeToLive = "LeaseTimeToLiveRequest LeaseTimeToLiveResponse reads",
  LeaseLeases = "LeaseLeasesRequest LeaseLeasesResponse reads",
})
add("etcdserverpb.Cluster", {
  MemberAdd = "MemberAddRequest MemberAddResponse",
  MemberRemove = "MemberRemoveRequest MemberRemoveResponse",
  MemberUpdate = "MemberUpdateRequest MemberUpdateResponse",
  MemberList = "MemberListRequest MemberListResponse reads",
  MemberPromote = "MemberPromoteRequest MemberPromoteResponse",
})
add("etcdserverpb.Maintenance", {
  Alarm = "AlarmRequest AlarmResponse",
  Status = "StatusRequest StatusResponse reads",
  Defragment = "DefragmentRequest DefragmentResponse",
  Hash = "HashRequest HashResponse reads",
  HashKV = "HashKVRequest HashKVResponse reads",
  Snapshot = "SnapshotRequest SnapshotResponse reads",
  MoveLeader = "MoveLeaderRequest MoveLeaderResponse",
  Downgrade = "DowngradeRequest DowngradeResponse",
})
for _, name in ipairs {
  "UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword", "UserGrantRole", "UserRevokeRole", "RoleAdd",
  "RoleGet", "RoleList", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
} do
  add("etcdserverpb.Auth", { [name] = ("Auth%sRequest Auth%sResponse"):format(name, name) })
end
add("etcdserverpb.Auth", {
  AuthEnable = "AuthEnableRequest AuthEnableResponse",
  AuthDisable = "AuthDisableRequest AuthDisableResponse",
  AuthStatus = "AuthStatusRequest AuthStatusResponse reads",
  Authenticate = "AuthenticateRequest AuthenticateResponse reads",
})
add("v3lockpb.Lock", { Lock = "LockRequest LockResponse", Unlock = "UnlockRequest UnlockResponse" })
add("v3electionpb.Election", {
  Campaign = "CampaignRequest CampaignResponse",
  Proclaim = "ProclaimRequest ProclaimResponse",
  Leader = "LeaderRequest LeaderResponse reads",
  Observe = "LeaderRequest LeaderResponse reads",
  Resign = "ResignRequest ResignResponse",
})
add("grpc.health.v1.Health", {
  Check = "HealthCheckRequest HealthCheckResponse reads",
  Watch = "HealthCheckRequest HealthCheckResponse reads",
})

--- Returns the bytes of a message. The message is a table if the name of its type is known, else a string. Raises
-- misuse of the function `called`.
local function encode(name, message, called)
  if not name then
    if type(message) == "string" then return message end
    check.misuse("%s: a message of a method that keywatch does not know must be a string, not a %s", called,
      type(message))
  end
  if message ~= nil and type(message) ~= "table" then
    check.misuse("%s: a %s must be a table, not a %s", called, name, type(message))
  end
  local ok, bytes = pcall(core.encode, name, message or {})
  if not ok then check.misuse("%s: %s", called, bytes) end
  return bytes
end

--- Returns the message of some bytes; or nil and an error. Without a name the bytes are the message.
local function decode(name, bytes)
  if not name then return bytes end
  local message, err = core.decode(name, bytes)
  if not message then err.message = "keywatch: the server's answer is malformed" end
  return message, err
end

return setmetatable({ encode = encode, decode = decode }, { __index = methods })
