-- SPDX-License-Identifier: MIT
--- continue_token: where a list continues: after which key, and at which revision. Clients return it unread.
--
-- A token is JSON, in hexadecimal digits: { v, rv, start }. `start` is the first key of the rest, relative to the
-- listed prefix, so that a token cannot leave it. rv = -1 stands for the newest revision.

local json = require "keywatch.json"
local status_error = require "keywatch.kubernetes.status_error"

local VERSION = "meta.k8s.io/v1"
local NEWEST = -1
local MAX_BYTES = 4096
local MAX_REVISION = 1e15 -- as of a resourceVersion, see reads.lua

--- Returns the token of a list that continues at a key.
local function encode(revision, start)
  local text = json.encode({ v = VERSION, rv = revision, start = start }, { sort_keys = true })
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- Returns the value of a token that is well-formed; nil otherwise.
local function parse(token)
  if #token > MAX_BYTES or #token % 2 ~= 0 or token:find("%X") then return nil end
  local found = json.decode((token:gsub("..", function(digits) return string.char(tonumber(digits, 16)) end)))
  if type(found) ~= "table" or found.v ~= VERSION then return nil end
  local revision, start = found.rv, found.start
  local is_revision = type(revision) == "number" and revision % 1 == 0 and (revision > 0 or revision == NEWEST)
    and revision < MAX_REVISION
  if not is_revision or type(start) ~= "string" or start == "" then return nil end
  return found
end

--- Returns revision and first key of a token; or nil and an error.
local function decode(token)
  local found = parse(token)
  if not found then return nil, status_error.bad_request("continue key is not valid: " .. token:sub(1, 100)) end
  return found.rv, found.start
end

return { encode = encode, decode = decode, NEWEST = NEWEST }
