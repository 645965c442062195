-- SPDX-License-Identifier: MIT
--- auth_roles: the methods of etcd's Auth service about roles and their permissions.

local driver = require "keywatch.task.driver"
local is_before = require("keywatch.support.key_order").is_before
local records = require "keywatch.server.services.auth_records"
local refusals = require "keywatch.server.services.auth_refusals"

local USERS, ROLES = records.USERS, records.ROLES

local USERS_PER_TURN = 16 -- users that RoleDelete reads before other tasks run

local handlers = {}

function handlers.RoleAdd(server, request)
  if (request.name or "") == "" then return nil, refusals.EMPTY_ROLE end
  if records.read(server, ROLES, request.name) then return nil, refusals.ROLE_EXISTS end
  if not records.has_room(server, ROLES) then return nil, refusals.TOO_MANY_ROLES end
  return records.change(server, { records.write(ROLES, { name = request.name }) })
end

function handlers.RoleGet(server, request)
  local role = records.read(server, ROLES, request.role)
  if not role then return nil, refusals.NO_ROLE end
  return records.answer(server, { perm = role.keyPermission })
end

function handlers.RoleList(server)
  return records.answer(server, { roles = records.names(server, ROLES) })
end

--- Deletes a role, and removes it from every user.
function handlers.RoleDelete(server, request)
  if not records.read(server, ROLES, request.role) then return nil, refusals.NO_ROLE end
  local changes = { { ROLES, request.role } }
  for i, name in ipairs(records.names(server, USERS)) do
    if i % USERS_PER_TURN == 0 then driver.get().sleep(0) end -- the users stay locked during the sleep
    local found
    local user = records.read(server, USERS, name)
    user.roles, found = records.without(user.roles, function(role) return role == request.role end)
    if found then changes[#changes + 1] = records.write(USERS, user) end
  end
  return records.change(server, changes)
end

--- True if the permission is for a key, or for a range that is not empty.
local function is_range(permission)
  local key, range_end = permission.key or "", permission.range_end or ""
  return key ~= "" and (range_end == "" or range_end == "\0" or is_before(key, range_end))
end

--- True if the permission is for exactly this range.
local function is_of(permission, key, range_end)
  return (permission.key or "") == (key or "") and (permission.range_end or "") == (range_end or "")
end

local function has_lower_key(a, b) return is_before(a.key or "", b.key or "") end

--- Adds a permission, or changes the type of the permission with the same range. Of several permissions with the same
-- key only the first is compared, as in etcd: the range of a later one may be added twice. Returns false if there are
-- too many permissions.
local function grant(permissions, given)
  for _, permission in ipairs(permissions) do
    if not has_lower_key(permission, given) then
      if not is_of(permission, given.key, given.range_end) then break end
      permission.permType = given.permType
      return true
    end
  end
  return records.insert(permissions, given, has_lower_key)
end

function handlers.RoleGrantPermission(server, request)
  if not request.perm then return nil, refusals.NO_PERMISSION end
  if not is_range(request.perm) then return nil, refusals.INVALID end
  local role = records.read(server, ROLES, request.name)
  if not role then return nil, refusals.NO_ROLE end
  role.keyPermission = role.keyPermission or {}
  if not grant(role.keyPermission, request.perm) then return nil, refusals.TOO_MANY_PERMISSIONS end
  return records.change(server, { records.write(ROLES, role) })
end

function handlers.RoleRevokePermission(server, request)
  local role = records.read(server, ROLES, request.role)
  if not role then return nil, refusals.NO_ROLE end
  local found
  role.keyPermission, found = records.without(role.keyPermission, function(permission)
    return is_of(permission, request.key, request.range_end)
  end)
  if not found then return nil, refusals.PERMISSION_NOT_GRANTED end
  return records.change(server, { records.write(ROLES, role) })
end

return { handlers = handlers }
