-- SPDX-License-Identifier: MIT
--- auth: the methods of etcd's service of that name, as one answers whose authentication is disabled and who has no
-- users and no roles. There can be none yet.

local header = require "keywatch.services.header"
local refusal = require "keywatch.services.refusal"

local REVISION = 1 -- of the users and roles, as long as nobody has changed them

local function fails(words)
  return function() return nil, refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: " .. words) end
end

--- A name is needed even for what cannot be added.
local function refuses_to_add(what)
  return function(_, request)
    if (request.name or "") == "" then
      return nil, refusal.new(refusal.INVALID_ARGUMENT, ("etcdserver: %s name is empty"):format(what))
    end
    return nil, refusal.new(refusal.UNIMPLEMENTED, "keywatch: there are no users and roles yet")
  end
end

local function with_header(server)
  return { header = header.of(server, server.store:status().revision) }
end

local function status(server)
  local answer = with_header(server)
  answer.authRevision = REVISION
  return answer
end

local no_user = fails "user name not found"
local no_role = fails "role name not found"

local handlers = {
  AuthStatus = status,
  AuthEnable = fails "root user does not exist",
  AuthDisable = with_header,
  Authenticate = fails "authentication is not enabled",
  UserAdd = refuses_to_add "user",
  UserGet = no_user,
  UserList = with_header,
  UserDelete = no_user,
  UserChangePassword = no_user,
  UserGrantRole = no_user,
  UserRevokeRole = no_user,
  RoleAdd = refuses_to_add "role",
  RoleGet = no_role,
  RoleList = with_header,
  RoleDelete = no_role,
  RoleGrantPermission = no_role,
  RoleRevokePermission = no_role,
}

local methods = {}
for name, handler in pairs(handlers) do
  local message = name:find("^Auth") and name or "Auth" .. name
  methods["/etcdserverpb.Auth/" .. name] = { message .. "Request", message .. "Response", handler }
end

return methods
