-- SPDX-License-Identifier: MIT
--- patch: applies merge patches (RFC 7396) and JSON patches (RFC 6902). The object and the patch are not changed, and
-- the result shares no table with them.
--
-- A hostile JSON patch is bounded: by the number of its operations; by the bytes that it copies, because each `copy`
-- may double the object; and by its work, the elements that it moves or copies. Other work is bounded by the length of
-- the patch's text.

local go_text = require "keywatch.kubernetes.go_text"
local json_pointer = require "keywatch.kubernetes.json_pointer"
local status_error = require "keywatch.kubernetes.status_error"
local turn = require "keywatch.kubernetes.turn"
local value = require "keywatch.kubernetes.value"

local MAX_OPERATIONS = 10000
local MAX_COPIED = 3 * 1024 * 1024 -- bytes of JSON, about
local MAX_WORK = 4000000 -- elements
local NODE_BYTES = 4 -- of JSON beside names and strings

local NULL, copy = value.NULL, value.copy

-- {====== Merge patches ======

--- Returns a target, which belongs to the result, with a patch applied.
local function merged(target, patch)
  if not value.is_object(patch) then return copy(patch) end
  local result = value.is_object(target) and target or {}
  for name, new in next, patch do
    if new == NULL then
      result[name] = nil
    else
      result[name] = merged(result[name], new)
    end
  end
  return result
end

--- Returns an object with a merge patch applied; or nil and an error.
local function merge(object, patch)
  if not value.is_object(patch) then return nil, status_error.bad_request("a merge patch must be a JSON object") end
  return merged(copy(object), patch)
end

-- }======

-- {====== JSON patches ======

--- Raises the reason why a patch cannot be applied.
local function refuse(text, ...)
  error({ why = text:format(...) }, 0)
end

--- Counts work of a patch. Raises if there was too much.
local function work(self, amount)
  self.work, self.left = self.work + amount, self.left - amount
  if self.left <= 0 then turn.pass(self) end
  if self.work > MAX_WORK then refuse("the patch takes too much work: split it into smaller ones") end
end

--- Counts the elements and bytes of a value. Returns the bytes.
local function measure(self, found)
  work(self, 1)
  if type(found) == "string" then return #found + NODE_BYTES end
  if type(found) ~= "table" then return NODE_BYTES end
  local bytes = NODE_BYTES
  for name, inner in next, found do
    bytes = bytes + measure(self, inner) + (type(name) == "string" and #name or 0)
  end
  return bytes
end

--- Returns the container that has the last token of a path, and the token. Raises if there is no such container.
local function parent_of(self, path, tokens)
  local found = self.document
  for i = 1, #tokens - 1 do
    found = type(found) == "table" and found[json_pointer.key_in(found, tokens[i])] or nil
  end
  if type(found) ~= "table" then refuse("there is no object or array for the path %s", go_text.quoted(path)) end
  work(self, #tokens)
  return found, tokens[#tokens]
end

--- Returns the tokens of the path in a member of an operation.
local function tokens_of(operation, member)
  local path = operation[member]
  local tokens = type(path) == "string" and json_pointer.parse(path)
  if not tokens then refuse("the operation's %s is not a JSON pointer", member) end
  return tokens, path
end

--- Returns the value at a path. Raises if there is none.
local function read(self, operation, member)
  local tokens, path = tokens_of(operation, member)
  if not tokens[1] then return self.document end
  local parent, token = parent_of(self, path, tokens)
  local found = parent[json_pointer.key_in(parent, token)]
  if found == nil then refuse("there is no value at the path %s", go_text.quoted(path)) end
  return found
end

--- Adds a value at the path of an operation.
local function add(self, operation, new)
  local tokens, path = tokens_of(operation, "path")
  if not tokens[1] then
    self.document = new
    return
  end
  local parent, token = parent_of(self, path, tokens)
  if not value.is_array(parent) then
    parent[token] = new
    return
  end
  local at = token == "-" and #parent + 1 or json_pointer.key_in(parent, token)
  if not at or at > #parent + 1 then refuse("the array has no place for the path %s", go_text.quoted(path)) end
  work(self, #parent - at + 1)
  table.insert(parent, at, new)
end

--- Removes the value at the path in a member of an operation.
local function remove(self, operation, member)
  local tokens, path = tokens_of(operation, member)
  if not tokens[1] then refuse("the whole object cannot be removed") end
  local parent, token = parent_of(self, path, tokens)
  local key = json_pointer.key_in(parent, token)
  if key == nil or parent[key] == nil then refuse("there is no value at the path %s", go_text.quoted(path)) end
  if not value.is_array(parent) then
    parent[key] = nil
    return
  end
  work(self, #parent - key)
  table.remove(parent, key)
end

--- Returns the member `value` of an operation.
local function value_of(operation)
  if operation.value == nil then refuse("the operation has no value") end
  return operation.value
end

-- By the name of an operation.
local operations = {}

function operations.add(self, operation)
  add(self, operation, copy(value_of(operation)))
end

function operations.remove(self, operation) remove(self, operation, "path") end

function operations.replace(self, operation)
  local new = value_of(operation)
  read(self, operation, "path")
  local tokens, path = tokens_of(operation, "path")
  if not tokens[1] then
    self.document = copy(new)
    return
  end
  local parent, token = parent_of(self, path, tokens)
  parent[json_pointer.key_in(parent, token)] = copy(new)
end

function operations.move(self, operation)
  local found = read(self, operation, "from")
  local from, path = operation.from, operation.path
  if from == path then return end
  if type(path) == "string" and path:sub(1, #from + 1) == from .. "/" then
    refuse("a value cannot be moved into itself")
  end
  remove(self, operation, "from")
  add(self, operation, found)
end

function operations.copy(self, operation)
  local found = read(self, operation, "from")
  self.copied = self.copied + measure(self, found)
  if self.copied > MAX_COPIED then refuse("the patch copies more than %d bytes", MAX_COPIED) end
  add(self, operation, copy(found))
end

function operations.test(self, operation)
  local found, wanted = read(self, operation, "path"), value_of(operation)
  if not value.equal(wanted, found) then
    refuse("testing value %s failed", go_text.quoted(tostring(operation.path)))
  end
end

--- Applies all operations. Returns the result. Raises the reason if that fails.
local function apply(object, list)
  local self = turn.begin { document = copy(object), work = 0, copied = 0 }
  for i, operation in ipairs(list) do
    local apply_one = value.is_object(operation) and operations[operation.op]
    if not apply_one then refuse("operation %d is not one of add, remove, replace, move, copy and test", i) end
    apply_one(self, operation)
  end
  if not value.is_object(self.document) then refuse("the result is not a JSON object") end
  return self.document
end

--- Returns an object with the operations of a JSON patch applied; or nil and an error.
local function json(object, list)
  if not value.is_array(list) then
    return nil, status_error.bad_request("a JSON patch must be an array of operations")
  end
  if #list > MAX_OPERATIONS then
    return nil, status_error.too_large(("The allowed maximum operations in a JSON patch is %d, got %d"):format(
      MAX_OPERATIONS, #list))
  end
  local ok, found = pcall(apply, object, list)
  if ok then return found end
  if type(found) ~= "table" or not found.why then error(found, 0) end
  return nil, status_error.unprocessable(found.why)
end

-- }======

return { merge = merge, json = json }
