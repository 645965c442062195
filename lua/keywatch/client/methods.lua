-- SPDX-License-Identifier: MIT
--- methods: the methods of etcd's API, by their paths: { request = name of the message, answer = name of the message,
-- is_read = whether the method changes nothing }. The messages of other methods are strings of bytes.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local methods = {}

--- Adds methods of a service. `names` are their names, separated by spaces; a "*" after a name means that the method
-- changes nothing. A request is the message NAMERequest, an answer NAMEResponse, both with `prefix`, if any, in front.
local function add(service, names, prefix)
  for name, star in names:gmatch("(%w+)(%*?)") do
    local message = (prefix or "") .. name
    methods[("/%s/%s"):format(service, name)] = {
      request = message .. "Request", answer = message .. "Response", is_read = star ~= "",
    }
  end
end

add("etcdserverpb.KV", "Range* RangeStream* Put DeleteRange Txn Compact")
methods["/etcdserverpb.KV/RangeStream"].request = "RangeRequest"
methods["/etcdserverpb.KV/Compact"].request = "CompactionRequest"
methods["/etcdserverpb.KV/Compact"].answer = "CompactionResponse"
add("etcdserverpb.Watch", "Watch")
add("etcdserverpb.Lease", "LeaseGrant LeaseRevoke LeaseKeepAlive LeaseTimeToLive* LeaseLeases*")
add("etcdserverpb.Cluster", "MemberAdd MemberRemove MemberUpdate MemberList* MemberPromote")
add("etcdserverpb.Maintenance", "Alarm Status* Defragment Hash* HashKV* Snapshot* MoveLeader Downgrade")
add("etcdserverpb.Auth", "AuthEnable AuthDisable AuthStatus* Authenticate*")
add("etcdserverpb.Auth", "UserAdd UserGet UserList UserDelete UserChangePassword UserGrantRole UserRevokeRole "
  .. "RoleAdd RoleGet RoleList RoleDelete RoleGrantPermission RoleRevokePermission", "Auth")
add("v3lockpb.Lock", "Lock Unlock")
add("v3electionpb.Election", "Campaign Proclaim Leader* Observe* Resign")
methods["/v3electionpb.Election/Observe"] = methods["/v3electionpb.Election/Leader"]
add("grpc.health.v1.Health", "Check* Watch*", "Health")
methods["/grpc.health.v1.Health/Watch"] = methods["/grpc.health.v1.Health/Check"]

--- Returns the bytes of a message. With `name`, the message's type, the message is a table, or nil for an empty one;
-- without, it is a string. Raises a usage error of the function `called`.
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

--- Returns the message that is encoded in `bytes`; or nil and an error. Without a name the bytes are the message.
local function decode(name, bytes)
  if not name then return bytes end
  local message, err = core.decode(name, bytes)
  if not message then err.message = "keywatch: the server's answer is malformed" end
  return message, err
end

return setmetatable({ encode = encode, decode = decode }, { __index = methods })
