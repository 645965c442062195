-- SPDX-License-Identifier: MIT
--- auth: the methods of etcd's service of that name, as one answers whose authentication is disabled: users and roles
-- are kept, and nobody is asked who he is.
--
-- They are kept with the store, under the names and in the form that etcd's file has them in. Every change of one
-- raises the auth revision, and changes are made one after the other. Whoever gives a user a password waits for its
-- hash, and so does everybody else: some 50 ms; between two of them all have their turn.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local header = require "keywatch.server.services.header"
local refusal = require "keywatch.server.services.refusal"

local USERS, ROLES, AUTH = "authUsers", "authRoles", "auth"
local REVISION = "authRevision"
local ROOT = "root" -- the user, and the role, which is there without having been added

local HASH_COST = 10
local MAX_PASSWORD = 72 -- bytes that bcrypt looks at

-- {====== Refusals ======

local function refusing(grpc_status)
  return function(words) return refusal.new(grpc_status, "etcdserver: " .. words) end
end

local failed, invalid = refusing(refusal.FAILED_PRECONDITION), refusing(refusal.INVALID_ARGUMENT)

local NO_ROOT_USER = failed "root user does not exist"
local NO_ROOT_ROLE = failed "root user does not have root role"
local NOT_ENABLED = failed "authentication is not enabled"
local USER_EXISTS = failed "user name already exists"
local NO_USER = failed "user name not found"
local ROLE_EXISTS = failed "role name already exists"
local NO_ROLE = failed "role name not found"
local ROLE_NOT_GRANTED = failed "role is not granted to the user"
local PERMISSION_NOT_GRANTED = failed "permission is not granted to the role"
local EMPTY_USER = invalid "user name is empty"
local EMPTY_ROLE = invalid "role name is empty"
local NO_PERMISSION = invalid "permission not given"
local INVALID = invalid "invalid auth management"
local TOO_LONG = refusal.new(refusal.UNKNOWN, "bcrypt: password length exceeds 72 bytes")
local BAD_HASH = refusal.new(refusal.UNKNOWN,
  "auth: authentication failed, password was given for no password user")
local CANNOT_ENABLE = refusal.new(refusal.UNIMPLEMENTED,
  "keywatch: authentication cannot be enabled: permissions are not checked yet")

-- }======

-- {====== Bytes ======

--- Eight of them, big-endian.
local function to_big_endian(n)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

local function from_big_endian(bytes)
  local n = 0
  for i = 1, #bytes do n = n * 256 + bytes:byte(i) end
  return n
end

--- Whether a comes before b, byte by byte: Lua's own order is that of the locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    if a:byte(i) ~= b:byte(i) then return a:byte(i) < b:byte(i) end
  end
  return #a < #b
end

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

--- What base64 stands for; nil if it is none.
local function from_base64(text)
  local body, padding = text:match("^([%w+/]*)(=*)$")
  if not body or #text % 4 ~= 0 or #padding > 2 then return nil end
  local bytes = body:gsub("..?.?.?", function(digits)
    local n = 0
    for i = 1, 4 do
      local digit = digits:sub(i, i)
      n = n * 64 + (digit == "" and 0 or DIGITS:find(digit, 1, true) - 1)
    end
    return to_big_endian(n):sub(6, 4 + #digits)
  end)
  return bytes
end

-- }======

-- {====== What is kept ======

local MESSAGES = { [USERS] = "User", [ROLES] = "Role" }

--- A store that has failed gives nothing, and says so: that is the answer.
local function rows(server, ...)
  local found, err = server.store:rows(...)
  if err then error(err, 0) end
  return found
end

--- A user or a role, or nil.
local function read(server, table_name, name)
  local bytes = rows(server, table_name, name or "")
  return bytes and core.decode(MESSAGES[table_name], bytes)
end

local function write(table_name, item)
  return { table_name, item.name, core.encode(MESSAGES[table_name], item) }
end

local function names(server, table_name)
  local list = {}
  for i, pair in ipairs(rows(server, table_name)) do list[i] = pair[1] end
  return list
end

local function revision(server)
  local bytes = rows(server, AUTH, REVISION)
  return bytes and from_big_endian(bytes) or 1
end

local function answer(server, fields)
  fields = fields or {}
  fields.header = header.of(server, server.store:status().revision)
  return fields
end

--- Makes the changes, and raises the revision, all at once.
local function change(server, changes)
  changes[#changes + 1] = { AUTH, REVISION, to_big_endian(revision(server) + 1) }
  local ok, err = server.store:change_rows(changes)
  if not ok then return nil, err end
  return answer(server)
end

--- A list without those items for which a function is true, and whether there were any.
local function without(list, is_out)
  local rest = {}
  for _, item in ipairs(list or {}) do
    if not is_out(item) then rest[#rest + 1] = item end
  end
  return rest, #rest < #(list or {})
end

--- Adds an item to a list in order, behind those that are its equals.
local function insert(list, item, is_less)
  local at = #list + 1
  while at > 1 and is_less(item, list[at - 1]) do at = at - 1 end
  table.insert(list, at, item)
end

-- }======

-- {====== Users ======

local handlers = {}

--- nil and a refusal if it cannot be made.
local function hash(password)
  driver.get().sleep(0)
  local hashed, why = core.hash_password(password, HASH_COST)
  if not hashed then return nil, refusal.new(refusal.UNKNOWN, why) end
  return hashed
end

function handlers.UserAdd(server, request)
  local options = request.options or {}
  local password = not options.no_password and (request.password or "") or nil
  if password and #password > MAX_PASSWORD then return nil, TOO_LONG end
  if (request.name or "") == "" then return nil, EMPTY_USER end
  if read(server, USERS, request.name) then return nil, USER_EXISTS end
  local hashed, err
  if password then
    hashed, err = hash(password)
    if not hashed then return nil, err end
  end
  return change(server, { write(USERS, { name = request.name, password = hashed, options = options }) })
end

function handlers.UserGet(server, request)
  local user = read(server, USERS, request.name)
  if not user then return nil, NO_USER end
  return answer(server, { roles = user.roles })
end

function handlers.UserList(server)
  return answer(server, { users = names(server, USERS) })
end

function handlers.UserDelete(server, request)
  if not read(server, USERS, request.name) then return nil, NO_USER end
  return change(server, { { USERS, request.name } })
end

--- As a password may come: as it is, or hashed already, in base64. Without any there is none that would do.
local function hash_of(request)
  if (request.password or "") ~= "" then return hash(request.password) end
  local hashed = from_base64(request.hashedPassword or "")
  if not hashed then return nil, BAD_HASH end
  return hashed
end

function handlers.UserChangePassword(server, request)
  if #(request.password or "") > MAX_PASSWORD then return nil, TOO_LONG end
  local user = read(server, USERS, request.name)
  if not user then return nil, NO_USER end
  if not (user.options and user.options.no_password) then
    local err
    user.password, err = hash_of(request)
    if not user.password then return nil, err end
  end
  return change(server, { write(USERS, user) })
end

local function has_role(user, name)
  local _, found = without(user.roles, function(role) return role == name end)
  return found
end

function handlers.UserGrantRole(server, request)
  local user = read(server, USERS, request.user)
  if not user then return nil, NO_USER end
  if request.role ~= ROOT and not read(server, ROLES, request.role) then return nil, NO_ROLE end
  if has_role(user, request.role) then return answer(server) end
  user.roles = user.roles or {}
  insert(user.roles, request.role, is_before)
  return change(server, { write(USERS, user) })
end

function handlers.UserRevokeRole(server, request)
  local user = read(server, USERS, request.name)
  if not user then return nil, NO_USER end
  local found
  user.roles, found = without(user.roles, function(role) return role == (request.role or "") end)
  if not found then return nil, ROLE_NOT_GRANTED end
  return change(server, { write(USERS, user) })
end

-- }======

-- {====== Roles ======

function handlers.RoleAdd(server, request)
  if (request.name or "") == "" then return nil, EMPTY_ROLE end
  if read(server, ROLES, request.name) then return nil, ROLE_EXISTS end
  return change(server, { write(ROLES, { name = request.name }) })
end

function handlers.RoleGet(server, request)
  local role = read(server, ROLES, request.role)
  if not role then return nil, NO_ROLE end
  return answer(server, { perm = role.keyPermission })
end

function handlers.RoleList(server)
  return answer(server, { roles = names(server, ROLES) })
end

--- Whoever has it loses it.
function handlers.RoleDelete(server, request)
  if not read(server, ROLES, request.role) then return nil, NO_ROLE end
  local changes = { { ROLES, request.role } }
  for _, name in ipairs(names(server, USERS)) do
    local found
    local user = read(server, USERS, name)
    user.roles, found = without(user.roles, function(role) return role == request.role end)
    if found then changes[#changes + 1] = write(USERS, user) end
  end
  return change(server, changes)
end

local function is_range(permission)
  local key, range_end = permission.key or "", permission.range_end or ""
  return key ~= "" and (range_end == "" or range_end == "\0" or is_before(key, range_end))
end

local function is_of(permission, key, range_end)
  return (permission.key or "") == (key or "") and (permission.range_end or "") == (range_end or "")
end

local function has_lower_key(a, b) return is_before(a.key or "", b.key or "") end

--- Of permissions for the same key only the first is looked at, as etcd does: those behind it may come twice.
local function grant(permissions, given)
  for _, permission in ipairs(permissions) do
    if not has_lower_key(permission, given) then
      if not is_of(permission, given.key, given.range_end) then break end
      permission.permType = given.permType
      return
    end
  end
  insert(permissions, given, has_lower_key)
end

function handlers.RoleGrantPermission(server, request)
  if not request.perm then return nil, NO_PERMISSION end
  if not is_range(request.perm) then return nil, INVALID end
  local role = read(server, ROLES, request.name)
  if not role then return nil, NO_ROLE end
  role.keyPermission = role.keyPermission or {}
  grant(role.keyPermission, request.perm)
  return change(server, { write(ROLES, role) })
end

function handlers.RoleRevokePermission(server, request)
  local role = read(server, ROLES, request.role)
  if not role then return nil, NO_ROLE end
  local found
  role.keyPermission, found = without(role.keyPermission, function(permission)
    return is_of(permission, request.key, request.range_end)
  end)
  if not found then return nil, PERMISSION_NOT_GRANTED end
  return change(server, { write(ROLES, role) })
end

-- }======

-- {====== Authentication ======

function handlers.AuthStatus(server)
  return answer(server, { authRevision = revision(server) })
end

--- Where etcd would begin to ask, we say that we cannot.
function handlers.AuthEnable(server)
  local root = read(server, USERS, ROOT)
  if not root then return nil, NO_ROOT_USER end
  return nil, has_role(root, ROOT) and CANNOT_ENABLE or NO_ROOT_ROLE
end

function handlers.AuthDisable(server)
  return answer(server)
end

function handlers.Authenticate()
  return nil, NOT_ENABLED
end

-- }======

-- {====== Turns ======

local turns = setmetatable({}, { __mode = "k" }) -- by store: { is_taken =, left = event }

local function take_turn(store)
  local turn = turns[store] or { is_taken = false, left = driver.get().event() }
  turns[store] = turn
  while turn.is_taken do turn.left:wait() end
  turn.is_taken = true
  return turn
end

--- A change reads what it changes, and may wait between the two.
local function in_turn(handler)
  return function(server, request)
    local turn = take_turn(server.store)
    local ok, result, err = pcall(handler, server, request)
    turn.is_taken = false
    turn.left:set()
    if not ok then error(result, 0) end
    return result, err
  end
end

for _, name in ipairs {
  "UserAdd", "UserDelete", "UserChangePassword", "UserGrantRole", "UserRevokeRole",
  "RoleAdd", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
} do
  handlers[name] = in_turn(handlers[name])
end

-- }======

local methods = {}
for name, handler in pairs(handlers) do
  local message = name:find("^Auth") and name or "Auth" .. name
  methods["/etcdserverpb.Auth/" .. name] = { message .. "Request", message .. "Response", handler }
end

return methods
