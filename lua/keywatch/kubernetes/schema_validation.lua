-- SPDX-License-Identifier: MIT
--- schema_validation: checks an object against the nodes of schema.lua. The causes and their texts are those of
-- Kubernetes. The list of causes is bounded, and so is the time that patterns take.

local go_text = require "keywatch.kubernetes.go_text"
local path_text = require "keywatch.kubernetes.path_text"
local patterns = require "keywatch.kubernetes.pattern"
local turn = require "keywatch.kubernetes.turn"
local value = require "keywatch.kubernetes.value"

local MAX_CAUSES = 100
local MAX_TRIED = 3 -- causes for each of the schemas of anyOf and oneOf

local type_of = value.type_of

local NONE = {} -- checks of null

local check_value

-- {====== Causes ======

--- Notes that a value is invalid for a schema that is only tried. Returns true if one is tried: then nothing is added.
local function fail(self)
  if self.is_trial then self.is_full = true end
  return self.is_trial
end

--- Adds a cause at the current path.
local function add(self, reason, message)
  if fail(self) then return end
  local causes = self.causes
  causes[#causes + 1] = { reason = reason, message = message, field = path_text.of(self.path) }
  self.is_full = #causes >= self.most
end

--- Adds the cause of a failed check of schema_checks.lua.
local function add_failure(self, failure, found)
  if fail(self) then return end
  self.path[#self.path + 1] = failure.at
  local text = failure.text
  if not text then
    local place = self.path[1] and path_text.of(self.path) or "<root>"
    text = ("Invalid value: %s: %s in body %s"):format(failure.shown or go_text.of(found), place, failure.rule)
  end
  add(self, failure.reason or "FieldValueInvalid", text)
  if failure.at then self.path[#self.path] = nil end
end

--- Adds the cause of a value of a wrong type.
local function add_type(self, node, kind)
  if fail(self) then return end
  local shown, place = go_text.quoted(kind), path_text.of(self.path)
  add(self, "FieldValueTypeInvalid",
    ("Invalid value: %s: %s in body must be of type %s: %s"):format(shown, place, node.type_text, shown))
end

-- }======

-- {====== Members and elements ======

--- Adds the causes of members that are needed.
local function check_required(self, names, object)
  local path = self.path
  for i = 1, #names do
    if object[names[i]] == nil then
      path[#path + 1] = names[i]
      add(self, "FieldValueRequired", "Required value")
      path[#path] = nil
    end
  end
end

--- Checks a value below the current path.
local function check_below(self, node, step, found)
  local path = self.path
  local depth = #path + 1
  path[depth] = step
  check_value(self, node, found)
  path[depth] = nil
end

local EMBEDDED = { "apiVersion", "kind" }

local function check_members(self, node, object)
  if node.required then check_required(self, node.required, object) end
  if node.is_resource and self.path[1] then check_required(self, EMBEDDED, object) end
  local properties, additional = node.properties, node.additional
  if not properties and (not additional or additional == true) then return end
  for name, found in next, object do
    local inner = properties and properties[name] or additional
    if inner and inner ~= true then check_below(self, inner, name, found) end
    if self.is_full then return end
  end
end

local function check_elements(self, node, list)
  local items = node.items
  if not items then return end
  for i = 1, #list do
    check_below(self, items, i, list[i])
    if self.is_full then return end
  end
end

-- }======

-- {====== Logic ======

--- True if a value is valid for a node. Makes no texts: most objects match one of several schemas.
local function matches(self, node, found)
  local is_trial, is_full = self.is_trial, self.is_full
  self.is_trial, self.is_full = true, false
  check_value(self, node, found)
  local ok = not self.is_full
  self.is_trial, self.is_full = is_trial, is_full
  return ok
end

--- Returns the number of nodes that match a value.
local function count_matches(self, nodes, found)
  local n = 0
  for i = 1, #nodes do
    if matches(self, nodes[i], found) then n = n + 1 end
  end
  return n
end

--- Returns the causes that a value has by itself for a node.
local function causes_of(self, node, found)
  local causes, most, is_full = self.causes, self.most, self.is_full
  self.causes, self.most, self.is_full = {}, MAX_TRIED, false
  check_value(self, node, found)
  local own = self.causes
  self.causes, self.most, self.is_full = causes, most, is_full
  return own
end

--- Returns the fewest causes that a value has for one of the nodes.
local function fewest_causes(self, nodes, found)
  local fewest
  for i = 1, #nodes do
    local causes = causes_of(self, nodes[i], found)
    if not fewest or #causes < #fewest then fewest = causes end
  end
  return fewest
end

--- Adds the cause of a value that does not match the nodes of a keyword, and the causes of the one that is closest.
local function add_logic(self, text, nodes, found)
  if fail(self) then return end
  local place = go_text.quoted(path_text.of(self.path))
  add(self, "FieldValueInvalid", ('Invalid value: "": %s must %s'):format(place, text))
  for _, cause in ipairs(nodes and fewest_causes(self, nodes, found) or {}) do
    self.causes[#self.causes + 1] = cause
  end
  self.is_full = #self.causes >= self.most
end

--- Adds the causes of a value for allOf, anyOf, oneOf and not.
local function check_logic(self, node, found)
  for _, inner in ipairs(node.all or {}) do check_value(self, inner, found) end
  if node.any and count_matches(self, node.any, found) == 0 then
    add_logic(self, "validate at least one schema (anyOf)", node.any, found)
  end
  local n = node.one and count_matches(self, node.one, found) or 1
  if n == 0 then
    add_logic(self, "validate one and only one schema (oneOf). Found none valid", node.one, found)
  elseif n > 1 then
    add_logic(self, ("validate one and only one schema (oneOf). Found %d valid alternatives"):format(n))
  end
  if node.none and matches(self, node.none, found) then add_logic(self, "not validate the schema (not)") end
end

-- }======

--- Adds the causes of a value at the current path.
function check_value(self, node, found)
  self.left = self.left - 1
  if self.left == 0 then turn.pass(self) end
  local kind = type_of(found)
  if kind == "null" and (node.is_nullable or not node.types) then return end
  if node.types and not node.types[kind] then return add_type(self, node, kind) end
  local list = node.checks[kind] or NONE
  for i = 1, #list do
    local failure = list[i](found, self.budget)
    if failure then add_failure(self, failure, found) end
  end
  if kind == "object" then
    check_members(self, node, found)
  elseif kind == "array" then
    check_elements(self, node, found)
  end
  if node.has_logic then check_logic(self, node, found) end
end

--- Returns the causes why an object is not valid for a node, sorted by fields; {} if it is valid.
local function validate(node, object)
  local self = turn.begin { path = {}, causes = {}, most = MAX_CAUSES, is_full = false, budget = patterns.budget() }
  check_value(self, node, object)
  if self.budget.left < 0 and not self.causes[1] then -- a schema of `not` has failed for this reason, perhaps
    add(self, "FieldValueInvalid", "Invalid value: the texts are too long to be matched against the patterns")
  end
  table.sort(self.causes, function(a, b)
    if a.field ~= b.field then return a.field < b.field end
    return a.message < b.message
  end)
  return self.causes
end

return { validate = validate }
