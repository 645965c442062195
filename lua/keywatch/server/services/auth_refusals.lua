-- SPDX-License-Identifier: MIT
--- auth_refusals: the refusals of the Auth service, with etcd's statuses and texts. Texts that begin with
-- "keywatch:" are those of refusals that etcd does not have.

local refusal = require "keywatch.server.services.refusal"

local function failed(words)
  return refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: " .. words)
end

local function invalid(words)
  return refusal.new(refusal.INVALID_ARGUMENT, "etcdserver: " .. words)
end

local function exhausted(words)
  return refusal.new(refusal.RESOURCE_EXHAUSTED, "keywatch: there are too many " .. words)
end

return {
  NO_ROOT_USER = failed "root user does not exist",
  NO_ROOT_ROLE = failed "root user does not have root role",
  NOT_ENABLED = failed "authentication is not enabled",
  USER_EXISTS = failed "user name already exists",
  NO_USER = failed "user name not found",
  ROLE_EXISTS = failed "role name already exists",
  NO_ROLE = failed "role name not found",
  ROLE_NOT_GRANTED = failed "role is not granted to the user",
  PERMISSION_NOT_GRANTED = failed "permission is not granted to the role",
  TOO_MANY_USERS = exhausted "users",
  TOO_MANY_ROLES = exhausted "roles",
  TOO_MANY_GRANTED = exhausted "roles of the user",
  TOO_MANY_PERMISSIONS = exhausted "permissions of the role",
  EMPTY_USER = invalid "user name is empty",
  EMPTY_ROLE = invalid "role name is empty",
  NO_PERMISSION = invalid "permission not given",
  INVALID = invalid "invalid auth management",
  TOO_LONG = refusal.new(refusal.UNKNOWN, "bcrypt: password length exceeds 72 bytes"),
  BAD_HASH = refusal.new(refusal.UNKNOWN, "auth: authentication failed, password was given for no password user"),
  CANNOT_ENABLE = refusal.new(refusal.UNIMPLEMENTED,
    "keywatch: authentication cannot be enabled: permissions are not checked yet"),
}
