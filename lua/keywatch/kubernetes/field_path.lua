-- SPDX-License-Identifier: MIT
--- field_path: the paths of declarations, in the part of JSONPath that CustomResourceDefinitions use:
--
--   .spec.size   .spec.ports[0].name   .metadata.labels['app\.kubernetes\.io/name']   .spec.ports[*].name
--   .status.conditions[?(@.type=="Ready")].status
--
-- A path is compiled to a list of steps: a name, an index from 0 on, true for all elements, or { names, value } for the
-- elements whose field is equal to a text.

local value = require "keywatch.kubernetes.value"

local MAX_VISITS = 10000 -- elements that are read for one cell of a table

-- {====== Compiling ======

--- Returns the text in single or double quotes at an index without its escapes, and the index after it; or nil.
local function quoted_at(text, at)
  local quote = text:match("^['\"]", at)
  if not quote then return nil end
  local parts, i = {}, at + 1
  while i <= #text do
    local char = text:sub(i, i)
    if char == quote then return table.concat(parts), i + 1 end
    if char == "\\" then
      i = i + 1
      char = text:sub(i, i)
    end
    parts[#parts + 1] = char
    i = i + 1
  end
end

--- Returns the names of ".a.b", in which a backslash escapes a dot, and the index after it; or nil.
local function names_at(text, at)
  local names = {}
  while text:find("^%.[A-Za-z0-9_\\$-]", at) do
    local from, stop = at + 1, at + 1
    while text:find("^[A-Za-z0-9_$-]", stop) or text:find("^\\.", stop) do
      stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
    end
    names[#names + 1] = text:sub(from, stop - 1):gsub("\\(.)", "%1")
    at = stop
  end
  if names[1] then return names, at end
end

--- Returns the filter of "?(@.type=="Ready")]" at an index, and the index after the bracket; or nil.
local function filter_at(text, at)
  local from = text:match("^%?%(%s*@()", at)
  if not from then return nil end
  local names, after = names_at(text, from)
  after = names and text:match("^%s*==%s*()", after)
  if not after then return nil end
  local wanted, stop = quoted_at(text, after)
  if not wanted then wanted, stop = text:match("^([A-Za-z0-9.-]+)()", after) end
  stop = wanted and text:match("^%s*%)%]()", stop)
  if stop then return { names = names, value = wanted }, stop end
end

--- Returns the step in brackets at an index, and the index after the closing bracket; or nil.
local function bracket_at(text, at)
  local index, stop = text:match("^(%d+)%]()", at)
  if index then return tonumber(index), stop end
  stop = text:match("^%*%]()", at)
  if stop then return true, stop end
  local name, after = quoted_at(text, at)
  stop = name and text:match("^%]()", after)
  if stop then return name, stop end
  return filter_at(text, at)
end

--- Adds the steps at an index to a list. Returns the index after them; or nil.
local function add_steps(steps, text, at)
  if text:sub(at, at) == "[" then
    local step, after = bracket_at(text, at + 1)
    steps[#steps + 1] = step
    return after
  end
  local names, after = names_at(text, at)
  for _, name in ipairs(names or {}) do steps[#steps + 1] = name end
  return after
end

--- Compiles a path. Returns its steps; or nil and the reason, as a predicate.
local function compile(text)
  if type(text) ~= "string" then return nil, "is not a string" end
  if text:sub(1, 1) == "{" and text:sub(-1) == "}" then text = text:sub(2, -2) end
  local steps, at = {}, 1
  if text == "" or text == "." then return nil, "is empty" end
  while at <= #text do
    local after = add_steps(steps, text, at)
    if not after then return nil, ("cannot be read from byte %d on"):format(at) end
    at = after
  end
  return steps
end

--- Compiles a path of names only, such as ".spec.replicas". Returns the list of names; or nil and the reason.
local function names(text)
  local steps, why = compile(text)
  if not steps then return nil, why end
  for _, step in ipairs(steps) do
    if type(step) ~= "string" then return nil, "may only have names" end
  end
  return steps
end

-- }======

-- {====== Reading and writing ======

--- Returns the value at a list of names, or nil.
local function get(object, list)
  for i = 1, #list do
    if not value.is_object(object) then return nil end
    object = object[list[i]]
  end
  return object
end

--- Sets the value at a list of names. Makes the objects on the way. Returns false if there is something else.
local function set(object, list, new)
  for i = 1, #list - 1 do
    local inner = object[list[i]]
    if value.is_nothing(inner) then
      inner = {}
      object[list[i]] = inner
    end
    if not value.is_object(inner) then return false end
    object = inner
  end
  object[list[#list]] = new
  return true
end

--- True if a field of an element is equal to the value of a filter.
local function passes(element, filter)
  local found = get(element, filter.names)
  return found ~= nil and type(found) ~= "table" and tostring(found) == filter.value
end

--- Returns the first value at the steps from the i-th on; nil if there is none. `left` is the number of elements that
-- may still be read.
local function first(object, steps, i, left)
  local step = steps[i]
  if step == nil then return object end
  if type(object) ~= "table" then return nil end
  if type(step) == "string" then
    if value.is_array(object) then return nil end
    return first(object[step], steps, i + 1, left)
  end
  if not value.is_array(object) then return nil end
  if type(step) == "number" then return first(object[step + 1], steps, i + 1, left) end
  for _, element in ipairs(object) do
    left.n = left.n - 1
    if left.n < 0 then return nil end
    local found
    if step == true or passes(element, step) then found = first(element, steps, i + 1, left) end
    if found ~= nil then return found end
  end
end

--- Returns the first value at compiled steps; nil if there is none.
local function find(object, steps)
  return first(object, steps, 1, { n = MAX_VISITS })
end

-- }======

return { compile = compile, names = names, get = get, set = set, find = find }
