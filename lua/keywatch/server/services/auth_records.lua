-- SPDX-License-Identifier: MIT
--- auth_records: users, roles and the auth revision, as rows of the store.
--
-- Tables, keys and encodings are those of etcd's file. Every change raises the auth revision. The numbers of users and
-- roles, and of their items, are limited, because an answer contains all of them and is made in one turn of the loop.

local core = require "keywatch.core"
local header = require "keywatch.server.services.header"

local USERS, ROLES, AUTH = "authUsers", "authRoles", "auth" -- tables
local REVISION = "authRevision"

local MOST = 5000 -- users, and roles
local MOST_ITEMS = 1000 -- roles of a user, and permissions of a role

local MESSAGES = { [USERS] = "User", [ROLES] = "Role" }

--- Returns rows of the store. Raises the error of a failed store, which becomes the answer of the call.
local function rows(server, ...)
  local found, err = server.store:rows(...)
  if err then error(err, 0) end
  return found
end

--- Returns a user or a role by name; or nil.
local function read(server, table_name, name)
  local encoded = rows(server, table_name, name or "")
  return encoded and core.decode(MESSAGES[table_name], encoded)
end

--- Returns the change that stores a user or a role.
local function write(table_name, item)
  return { table_name, item.name, core.encode(MESSAGES[table_name], item) }
end

--- Returns the names of all users, or of all roles.
local function names(server, table_name)
  return rows(server, table_name)
end

--- True if there may be one more user, or role.
local function has_room(server, table_name)
  return #rows(server, table_name) < MOST
end

--- Returns a whole number below 2^53 as eight big-endian bytes.
local function to_big_endian(n)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

--- Returns the whole number that big-endian bytes encode.
local function from_big_endian(bytes)
  local n = 0
  for i = 1, #bytes do n = n * 256 + bytes:byte(i) end
  return n
end

--- Returns the auth revision.
local function revision(server)
  local encoded = rows(server, AUTH, REVISION)
  return encoded and from_big_endian(encoded) or 1
end

--- Returns an answer: the fields, with a header.
local function answer(server, fields)
  fields = fields or {}
  fields.header = header.of(server, server.store:status().revision)
  return fields
end

--- Makes all changes, and raises the auth revision, in one durable step. Returns an answer; or nil and an error.
local function change(server, changes)
  changes[#changes + 1] = { AUTH, REVISION, to_big_endian(revision(server) + 1) }
  local ok, err = server.store:change_rows(changes)
  if not ok then return nil, err end
  return answer(server)
end

--- Returns a copy of a list without the items for which a function is true; and whether there were any.
local function without(list, is_out)
  local rest = {}
  for _, item in ipairs(list or {}) do
    if not is_out(item) then rest[#rest + 1] = item end
  end
  return rest, #rest < #(list or {})
end

--- Inserts an item into a sorted list, after equal items. Returns false if the list is full.
local function insert(list, item, is_less)
  local at = #list + 1
  if at > MOST_ITEMS then return false end
  while at > 1 and is_less(item, list[at - 1]) do at = at - 1 end
  table.insert(list, at, item)
  return true
end

return {
  USERS = USERS,
  ROLES = ROLES,
  read = read,
  write = write,
  names = names,
  has_room = has_room,
  revision = revision,
  answer = answer,
  change = change,
  without = without,
  insert = insert,
}
