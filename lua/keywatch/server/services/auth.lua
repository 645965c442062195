-- SPDX-License-Identifier: MIT
--- auth: etcd's Auth service, as a server with authentication disabled answers it: users and roles are stored, and no
-- client is asked for a password.
--
-- Changes are made one after the other, see in_turn.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local records = require "keywatch.server.services.auth_records"
local refusals = require "keywatch.server.services.auth_refusals"
local roles = require "keywatch.server.services.auth_roles"
local users = require "keywatch.server.services.auth_users"

local ROOT = "root" -- the name of a user, and of that user's role

-- {====== Authentication ======

local handlers = {}

function handlers.AuthStatus(server)
  return records.answer(server, { authRevision = records.revision(server) })
end

--- Always refuses, because permissions are not checked yet. If etcd would refuse, too, the refusal is etcd's.
function handlers.AuthEnable(server)
  local root = records.read(server, records.USERS, ROOT)
  if not root then return nil, refusals.NO_ROOT_USER end
  return nil, users.has_role(root, ROOT) and refusals.CANNOT_ENABLE or refusals.NO_ROOT_ROLE
end

function handlers.AuthDisable(server)
  return records.answer(server)
end

function handlers.Authenticate()
  return nil, refusals.NOT_ENABLED
end

-- }======

-- {====== Turns ======

local CHANGES = {
  "UserAdd", "UserDelete", "UserChangePassword", "UserGrantRole", "UserRevokeRole",
  "RoleAdd", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
}

local MAX_WAITING = 256 -- calls of one store that wait for their turn

-- By store: { waiting = number of calls, token = channel }. A call that has received the token may change users and
-- roles, and then sends the token back, to the call that has waited longest.
local turns = setmetatable({}, { __mode = "k" })

local function stop_waiting(turn)
  turn.waiting = turn.waiting - 1
end

local function leave(turn)
  turn.token:send(true)
end

--- Returns the turn of a store.
local function turn_of(store)
  if not turns[store] then
    local turn = { waiting = 0, token = driver.get().channel(1) }
    leave(turn)
    turns[store] = turns[store] or turn
  end
  return turns[store]
end

--- Waits until no other call changes users or roles of the store. Returns the turn; or nil if too many calls wait.
local function take_turn(store)
  local turn = turn_of(store)
  if turn.waiting >= MAX_WAITING then return nil end
  turn.waiting = turn.waiting + 1
  local ok, err = driver.protect(stop_waiting, turn, turn.token.receive, turn.token)
  stop_waiting(turn)
  if not ok then error(err, 0) end
  return turn
end

--- Returns a handler that never runs at the same time as another change, since a change reads a record, may wait, and
-- then writes the record.
local function in_turn(handler)
  return function(server, request)
    local turn = take_turn(server.store)
    if not turn then return nil, core.new_error("too_many_requests") end
    local ok, result, err = driver.protect(leave, turn, handler, server, request)
    leave(turn)
    if not ok then error(result, 0) end
    return result, err
  end
end

-- }======

for _, part in ipairs { users, roles } do
  for name, handler in pairs(part.handlers) do handlers[name] = handler end
end
for _, name in ipairs(CHANGES) do handlers[name] = in_turn(handlers[name]) end

local methods = {}
for name, handler in pairs(handlers) do
  local message = name:find("^Auth") and name or "Auth" .. name
  methods["/etcdserverpb.Auth/" .. name] = { message .. "Request", message .. "Response", handler }
end

return methods
