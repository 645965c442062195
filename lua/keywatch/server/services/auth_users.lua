-- SPDX-License-Identifier: MIT
--- auth_users: the methods of etcd's Auth service about users.
--
-- A password is stored as its bcrypt hash. Hashing takes about 50 ms, so a thread does it, and the call polls the
-- thread. The thread of an abandoned call keeps running; later calls wait for such threads, so that not too many run at
-- once.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local is_before = require("keywatch.support.key_order").is_before
local records = require "keywatch.server.services.auth_records"
local refusal = require "keywatch.server.services.refusal"
local refusals = require "keywatch.server.services.auth_refusals"

local USERS, ROLES = records.USERS, records.ROLES
local ROOT = "root" -- the role that exists without having been added

local HASH_COST = 10
local MAX_PASSWORD = 72 -- bytes that bcrypt uses
local MAX_THREADS = 2 -- that hash at once
local LOOK_AGAIN = 0.005 -- seconds between two polls of a thread

local handlers = {}

--- Waits for the result of a hashing. Returns the hash; or false and a text.
local function await(hashing)
  while true do
    local hashed, why = hashing:result()
    if hashed ~= nil then return hashed, why end
    driver.get().sleep(LOOK_AGAIN)
  end
end

local running = {} -- hashings whose threads may still run, including those of abandoned calls

--- Forgets the threads that have ended. Returns true if one more may be started.
local function has_room()
  for i = #running, 1, -1 do
    if running[i]:result() ~= nil then table.remove(running, i):close() end
  end
  return #running < MAX_THREADS
end

--- Begins to hash in a thread, as soon as few enough threads run. Returns the hashing, or nil.
local function begin(password)
  while not has_room() do driver.get().sleep(LOOK_AGAIN) end
  local hashing = core.begin_hash(password, HASH_COST)
  table.insert(running, hashing)
  return hashing
end

--- Returns the hash of a password, which a thread makes; or nil and a refusal. If no thread can be started, or in
-- virtual time, which does not advance for threads, blocks the loop.
local function hash(password)
  local hashing = not driver.get().carry and begin(password)
  local hashed, why
  if hashing then
    hashed, why = await(hashing)
    has_room()
  else
    hashed, why = core.hash_password(password, HASH_COST)
  end
  if not hashed then return nil, refusal.new(refusal.UNKNOWN, why) end
  return hashed
end

function handlers.UserAdd(server, request)
  local options = request.options or {}
  local password = not options.no_password and (request.password or "") or nil
  if password and #password > MAX_PASSWORD then return nil, refusals.TOO_LONG end
  if (request.name or "") == "" then return nil, refusals.EMPTY_USER end
  if records.read(server, USERS, request.name) then return nil, refusals.USER_EXISTS end
  if not records.has_room(server, USERS) then return nil, refusals.TOO_MANY_USERS end
  local hashed, err
  if password then
    hashed, err = hash(password)
    if not hashed then return nil, err end
  end
  return records.change(server, {
    records.write(USERS, { name = request.name, password = hashed, options = options }),
  })
end

function handlers.UserGet(server, request)
  local user = records.read(server, USERS, request.name)
  if not user then return nil, refusals.NO_USER end
  return records.answer(server, { roles = user.roles })
end

function handlers.UserList(server)
  return records.answer(server, { users = records.names(server, USERS) })
end

function handlers.UserDelete(server, request)
  if not records.read(server, USERS, request.name) then return nil, refusals.NO_USER end
  return records.change(server, { { USERS, request.name } })
end

-- {====== Base64 ======

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local values = { [""] = 0 } -- of digits
for i = 1, #DIGITS do values[DIGITS:sub(i, i)] = i - 1 end

--- Returns the bytes of up to four base64 digits.
local function from_digits(a, b, c, d)
  local n = ((values[a] * 64 + values[b]) * 64 + values[c]) * 64 + values[d]
  local bytes = string.char(math.floor(n / 65536), math.floor(n / 256) % 256, n % 256)
  return d ~= "" and bytes or bytes:sub(1, c ~= "" and 2 or 1)
end

--- Returns the bytes of a base64 text; nil if the text is not base64.
local function from_base64(text)
  local body, padding = text:match("^([%w+/]*)(=*)$")
  if not body or #text % 4 ~= 0 or #padding > 2 then return nil end
  return (body:gsub("(.)(.?)(.?)(.?)", from_digits))
end

-- }======

--- Returns the hash of the password in a request: the password is a text, or is hashed already, in base64. Without a
-- password the hash is empty, and matches no password. Returns nil and a refusal if there is no hash.
local function hash_of(request)
  if (request.password or "") ~= "" then return hash(request.password) end
  local hashed = from_base64(request.hashedPassword or "")
  if not hashed then return nil, refusals.BAD_HASH end
  return hashed
end

function handlers.UserChangePassword(server, request)
  if #(request.password or "") > MAX_PASSWORD then return nil, refusals.TOO_LONG end
  local user = records.read(server, USERS, request.name)
  if not user then return nil, refusals.NO_USER end
  if not (user.options and user.options.no_password) then
    local err
    user.password, err = hash_of(request)
    if not user.password then return nil, err end
  end
  return records.change(server, { records.write(USERS, user) })
end

--- True if the user has the role.
local function has_role(user, name)
  local _, found = records.without(user.roles, function(role) return role == name end)
  return found
end

function handlers.UserGrantRole(server, request)
  local user = records.read(server, USERS, request.user)
  if not user then return nil, refusals.NO_USER end
  if request.role ~= ROOT and not records.read(server, ROLES, request.role) then return nil, refusals.NO_ROLE end
  if has_role(user, request.role) then return records.answer(server) end
  user.roles = user.roles or {}
  if not records.insert(user.roles, request.role, is_before) then return nil, refusals.TOO_MANY_GRANTED end
  return records.change(server, { records.write(USERS, user) })
end

function handlers.UserRevokeRole(server, request)
  local user = records.read(server, USERS, request.name)
  if not user then return nil, refusals.NO_USER end
  local found
  user.roles, found = records.without(user.roles, function(role) return role == (request.role or "") end)
  if not found then return nil, refusals.ROLE_NOT_GRANTED end
  return records.change(server, { records.write(USERS, user) })
end

return { handlers = handlers, has_role = has_role }
