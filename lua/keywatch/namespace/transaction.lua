-- SPDX-License-Identifier: MIT
--- transaction: converts transactions between a namespace and its owner. The caller's tables are copied and not
-- changed. Malformed parts are copied, too, and refused by the owner.

local check = require "keywatch.support.check"
local keys = require "keywatch.namespace.keys"

local MAX_NESTING = 200 -- like in the core; deeper ones are refused before they are copied

--- Returns a compare for the owner.
local function compare(space, given)
  if type(given) ~= "table" then return given end
  local own = check.copy(given)
  own.key = keys.set_range(space, own.key, own)
  return own
end

local translate

--- Returns an operation for the owner.
local function operation(space, given, depth, done)
  if type(given) ~= "table" then return given end
  local own = check.copy(given)
  if own.range ~= nil then own.range = keys.set_range(space, own.range, own) end
  if own.delete ~= nil then own.delete = keys.set_range(space, own.delete, own) end
  if own.get ~= nil then own.get = keys.outer(space, own.get) end
  if own.put ~= nil then own.put = keys.outer(space, own.put) end
  if own.txn ~= nil then own.txn = translate(space, own.txn, depth + 1, done or {}) end
  return own
end

--- Returns a list of operations for the owner. `done` has the lists that were translated already, or are being
-- translated: a list may occur many times, and may contain itself.
local function operations(space, list, depth, done)
  if type(list) ~= "table" then return list end
  if done and done[list] then return done[list] end
  local own = {}
  if done then done[list] = own end
  for i, given in next, list do own[i] = operation(space, given, depth, done) end
  return own
end

--- Returns a list of compares for the owner.
local function compares(space, list)
  if type(list) ~= "table" then return list end
  local own = {}
  for i, given in next, list do own[i] = compare(space, given) end
  return own
end

--- Returns a transaction for the owner.
function translate(space, txn, depth, done)
  if type(txn) ~= "table" then return txn end
  if depth > MAX_NESTING then check.misuse("txn: nested more than %d deep", MAX_NESTING) end
  local own = check.copy(txn)
  own.compare = compares(space, own.compare)
  own.success = operations(space, own.success, depth, done)
  own.failure = operations(space, own.failure, depth, done)
  return own
end

local cut_result

--- Removes the prefix from the keys in the response of an operation. The response of a get is a kv, or false.
local function cut_response(space, response)
  if not response then return end
  if response.key then
    keys.cut(space, { response })
  elseif response.kvs then
    keys.cut(space, response.kvs)
  elseif response.responses then
    cut_result(space, response)
  else
    if response.prev_kv then keys.cut(space, { response.prev_kv }) end
    if response.prev_kvs then keys.cut(space, response.prev_kvs) end
  end
end

--- Removes the prefix from the keys in the result of a transaction.
function cut_result(space, result)
  for _, response in ipairs(result.responses) do cut_response(space, response) end
end

--- Returns a transaction for the owner of a namespace.
local function outer(space, txn)
  return translate(space, txn, 0, nil)
end

return { outer = outer, cut = cut_result }
