-- SPDX-License-Identifier: MIT
--- schema_fields: removes fields that a schema does not know, and sets defaults. Both change the object in place, and
-- leave values of wrong types alone: validation refuses them afterwards. Nodes are those of schema.lua.

local turn = require "keywatch.kubernetes.turn"
local path_text = require "keywatch.kubernetes.path_text"
local value = require "keywatch.kubernetes.value"

local MAX_PATHS = 100 -- of removed fields, in the list
local RESOURCE_FIELDS = { apiVersion = true, kind = true, metadata = true }

local NULL, is_array = value.NULL, value.is_array

--- Counts a value.
local function count(self)
  self.left = self.left - 1
  if self.left == 0 then turn.pass(self) end
end

-- {====== Unknown fields ======

local prune_value

--- Returns the node of a member, and true if the member is known.
local function member_node(node, name)
  local inner = node.properties and node.properties[name]
  if inner then return inner, true end
  if node.additional then return node.additional ~= true and node.additional or nil, true end
  return nil, node.is_open or node.is_resource and RESOURCE_FIELDS[name]
end

--- Removes a member. Adds its path to the list of removed ones.
local function remove(self, object, name)
  local path, removed = self.path, self.removed
  object[name] = nil
  path[#path + 1] = name
  if #removed < MAX_PATHS then removed[#removed + 1] = path_text.of(path) end
  path[#path] = nil
end

local function prune_object(self, node, object)
  local path = self.path
  for name, inner in next, object do
    local inner_node, is_known = member_node(node, name)
    if not is_known then
      remove(self, object, name)
    elseif inner_node and type(inner) == "table" then
      path[#path + 1] = name
      prune_value(self, inner_node, inner)
      path[#path] = nil
    end
  end
end

function prune_value(self, node, found)
  count(self)
  if not is_array(found) then return prune_object(self, node, found) end
  local items, path = node.items, self.path
  if not items or not items.has_fields then return end
  for i = 1, #found do
    if type(found[i]) == "table" then
      path[#path + 1] = i
      prune_value(self, items, found[i])
      path[#path] = nil
    end
  end
end

--- Removes the fields of an object that the schema does not know. Returns the list of their paths, sorted, such as
-- "spec.ports[0].nmae"; of many only the first.
local function prune(node, object)
  local self = turn.begin { path = {}, removed = {} }
  if type(object) == "table" then prune_value(self, node, object) end
  table.sort(self.removed)
  return self.removed
end

-- }======

-- {====== Defaults ======

local default_value

--- Removes nulls of members that cannot be null, and sets the defaults of absent members.
local function default_object(self, node, object)
  for name, inner in next, object do
    local inner_node = member_node(node, name)
    if inner == NULL and inner_node and not inner_node.is_nullable then object[name] = nil end
  end
  for name, inner_node in next, node.properties or {} do
    if object[name] == nil and inner_node.default ~= nil then object[name] = value.copy(inner_node.default) end
  end
  for name, inner in next, object do
    if type(inner) == "table" then
      local inner_node = member_node(node, name)
      if inner_node and inner_node.has_defaults then default_value(self, inner_node, inner) end
    end
  end
end

function default_value(self, node, found)
  count(self)
  if not is_array(found) then return default_object(self, node, found) end
  local items = node.items
  if not items or not items.has_defaults then return end
  for i = 1, #found do
    if type(found[i]) == "table" then default_value(self, items, found[i]) end
  end
end

--- Sets the defaults of a schema in an object.
local function apply_defaults(node, object)
  if node.has_defaults and type(object) == "table" then default_value(turn.begin {}, node, object) end
end

-- }======

return { prune = prune, apply_defaults = apply_defaults }
