-- SPDX-License-Identifier: MIT
--- selector: selects objects by their labels or by their fields. A selector is given as a text (selector_text.lua) or
-- as a table:
--
--   { app = "web",                              equal to a string, a number or a boolean
--     tier = { "a", "b" },                      equal to one of these values
--     env = { not_in = { "test" } },            equal to none of these values, or absent
--     old = { exists = false },                 absent; with true: present
--     generation = { above = 3, below = 9 } }   a whole number greater than 3 and less than 9
--
-- A selector is a list of requirements, and an object matches if it meets all of them. A label is looked up by its
-- whole name in the table of labels. A field is a path: "spec.nodeName" is object.spec.nodeName; a backslash escapes a
-- dot in a name.
--
-- Values are compared as texts. The text of a number is the same on every VM: 1 and 1.0 are both "1". As in Kubernetes,
-- an absent field is equal to "", and an absent label is equal to no value. A decoder's null is absent.

local check = require "keywatch.support.check"
local selector_text = require "keywatch.cache.selector_text"

local LABELS_AT = "metadata.labels"

local selector_methods, selector_mt = check.class "keywatch.selector"

local type = type

-- {====== Values ======

--- Returns the text of a number.
local function text_of_number(value)
  if value ~= value then return "nan" end
  if value % 1 == 0 and value >= -2 ^ 63 and value < 2 ^ 63 then return ("%d"):format(value) end
  if value == math.huge then return "inf" end
  if value == -math.huge then return "-inf" end
  return ("%.14g"):format(value)
end

--- Returns the text of a value; nil if the value has no text, such as a table.
local function text_of(value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return text_of_number(value) end
  if kind == "boolean" then return value and "true" or "false" end
end

--- True if a value is present. A decoder's null is absent.
local function is_present(value)
  return value ~= nil and type(value) ~= "userdata"
end

--- Returns the names in the path of a field.
local function path_of(name)
  local path, part = {}, {}
  for escape, char in name:gmatch("(\\?)(.)") do
    if escape == "" and char == "." then
      path[#path + 1], part = table.concat(part), {}
    else
      part[#part + 1] = (escape ~= "" and char ~= "." and "\\" or "") .. char
    end
  end
  path[#path + 1] = table.concat(part)
  return path
end

--- Returns the value at a path, or nil.
local function follow(object, path)
  for i = 1, #path do
    if type(object) ~= "table" then return nil end
    object = object[path[i]]
  end
  return object
end

--- Returns the value of the label or field of an object that a requirement is about; nil if there is none.
local function value_of(requirement, object)
  local found = follow(object, requirement.path)
  if requirement.label == nil then return found end
  if type(found) == "table" then return found[requirement.label] end
end

-- }======

-- {====== Requirements ======

-- By operator: functions of a requirement and of the object's value. They return true if the value meets the
-- requirement.
local tests = {}

tests["in"] = function(requirement, value)
  if not is_present(value) then return requirement.takes_absent end
  local text = text_of(value)
  return text ~= nil and requirement.set[text] == true
end

tests["notin"] = function(requirement, value)
  if not is_present(value) then return not requirement.takes_absent end
  local text = text_of(value)
  return text == nil or requirement.set[text] ~= true
end

tests["exists"] = function(_, value) return is_present(value) end
tests["not exists"] = function(_, value) return not is_present(value) end

--- Splits the text of a whole number for is_below. Returns the number of its digits, negative for a negative number;
-- the digits; and true if the number is negative.
local function sortable(text)
  local sign, digits = text:match("^([+-]?)0*(%d+)$")
  local is_negative = sign == "-" and digits ~= "0"
  return is_negative and -#digits or #digits, digits, is_negative
end

--- True if the whole number in the text `a` is less than the one in `b`. Compares the texts, since a LuaJIT number
-- cannot hold 64 bits.
local function is_below(a, b)
  local length, digits, is_negative = sortable(a)
  local other_length, other_digits = sortable(b)
  if length ~= other_length then return length < other_length end
  if is_negative then return digits > other_digits end
  return digits < other_digits
end

tests[">"] = function(requirement, value)
  local text = is_present(value) and text_of(value)
  return text and selector_text.is_whole(text) and is_below(requirement.values[1], text) or false
end

tests["<"] = function(requirement, value)
  local text = is_present(value) and text_of(value)
  return text and selector_text.is_whole(text) and is_below(text, requirement.values[1]) or false
end

--- Adds the derived fields to a requirement { name, operator, values }. `labels_path` is nil for a requirement of
-- fields.
local function complete(requirement, labels_path)
  requirement.set, requirement.test = {}, tests[requirement.operator]
  for _, value in ipairs(requirement.values) do requirement.set[value] = true end
  requirement.path = labels_path or path_of(requirement.name)
  if labels_path then requirement.label = requirement.name end
  requirement.takes_absent = not labels_path and requirement.set[""] == true -- an absent field has the empty value
  return requirement
end

-- }======

-- {====== Tables ======

--- Returns the list of texts of a value, or of a list of values; nil if a value has no text.
local function texts_of(given)
  local only = text_of(given)
  if only then return { only } end
  if type(given) ~= "table" then return nil end
  local list, n = {}, 0
  for _ in pairs(given) do n = n + 1 end
  for i = 1, n do
    list[i] = text_of(given[i])
    if not list[i] then return nil end
  end
  return list
end

-- By the word in a selector table, such as `above`: functions of the value in the table. Each returns the operator, and
-- the list of values of the requirement; or nil.
local words = {}

function words.not_in(given) return "notin", texts_of(given) end

function words.exists(given)
  if type(given) == "boolean" then return given and "exists" or "not exists", {} end
end

--- Returns a list with the text of a whole number; nil if `given` is not a whole number.
local function bound_of(given)
  local text = type(given) == "number" and text_of(given) or given
  if type(text) == "string" and selector_text.is_whole(text) then return { text } end
end

function words.above(given) return ">", bound_of(given) end
function words.below(given) return "<", bound_of(given) end

--- Adds the requirements of one field of a selector table to a list. Returns false if the field is malformed.
local function add_field(list, name, given)
  local values = texts_of(given)
  if values then
    if type(given) == "table" and #values == 0 then return false end
    list[#list + 1] = { name = name, operator = "in", values = values }
    return true
  end
  if type(given) ~= "table" then return false end
  for word, value in pairs(given) do
    local read = words[word]
    if not read then return false end
    local operator, found = read(value)
    if not operator or not found then return false end
    list[#list + 1] = { name = name, operator = operator, values = found }
  end
  return true
end

--- Returns the requirements of a selector table, in the order of names; or nil and the reason, as a predicate.
local function of_table(given)
  local list = {}
  for name, value in pairs(given) do
    if type(name) ~= "string" or name == "" or not add_field(list, name, value) then
      return nil, "has an invalid requirement for " .. check.shown(name)
    end
  end
  table.sort(list, function(a, b)
    if a.name ~= b.name then return a.name < b.name end
    return a.operator < b.operator
  end)
  return list
end

-- }======

--- Returns a selector of a kind, "labels" or "fields". `labels_at` is the path of the labels in an object. Returns nil
-- and the reason, as a predicate, if `given` is not a selector of this kind.
local function parse(given, kind, labels_at)
  if getmetatable(given) == selector_mt then
    if given.kind == kind then return given end
    return nil, "is a selector of " .. given.kind
  end
  local list, why
  if type(given) == "string" then
    list, why = selector_text[kind](given)
  elseif type(given) == "table" then
    list, why = of_table(given)
  else
    return nil, "must be a text, a table or a selector, not " .. check.shown(given)
  end
  if not list then return nil, why end
  local labels_path = kind == "labels" and path_of(labels_at or LABELS_AT) or nil
  for i = 1, #list do complete(list[i], labels_path) end
  return setmetatable({ kind = kind, list = list }, selector_mt)
end

--- True if an object meets all requirements. Raises the errors of the object's metamethods.
local function test(self, object)
  local list = self.list
  for i = 1, #list do
    local requirement = list[i]
    if not requirement.test(requirement, value_of(requirement, object)) then return false end
  end
  return true
end

--- True if an object meets all requirements. An object whose metamethods raise does not match.
function selector_methods:matches(object)
  local ok, found = pcall(test, self, object)
  return ok and found
end

--- True if every object matches.
local function is_empty(self)
  return self.list[1] == nil
end

--- Returns the requirement that an index can serve best: of the requirements with the operator "in", the one with the
-- fewest values. Returns nil if there is none.
local function indexable(self)
  local best
  for _, requirement in ipairs(self.list) do
    if requirement.operator == "in" and (not best or #requirement.values < #best.values) then best = requirement end
  end
  return best
end

--- Returns the text under which an index for a requirement has an object; nil if the object is not in the index.
local function index_text(requirement, object)
  local value = value_of(requirement, object)
  if is_present(value) then return text_of(value) end
  if requirement.label == nil then return "" end
end

-- {====== Texts ======

local SIGNS = { ["in"] = "=", ["notin"] = "!=", [">"] = ">", ["<"] = "<" }

--- Returns the text of a requirement.
local function shown(requirement, kind)
  if requirement.operator == "exists" then return requirement.name end
  if requirement.operator == "not exists" then return "!" .. requirement.name end
  local name, values = requirement.name, requirement.values
  if #values ~= 1 then return ("%s %s (%s)"):format(name, requirement.operator, table.concat(values, ",")) end
  local value = values[1]
  if kind == "fields" then value = value:gsub("[\\,=]", "\\%0") end
  return name .. SIGNS[requirement.operator] .. value
end

--- Returns the text of the selector.
function selector_mt:__tostring()
  local parts = {}
  for i, requirement in ipairs(self.list) do parts[i] = shown(requirement, self.kind) end
  return table.concat(parts, ",")
end

-- }======

local OPTIONS = { kind = check.one_of("labels", "fields"), labels_at = "string" }

--- Returns a selector for labels or fields, from a text or a table. Raises if `given` is malformed.
local function new(given, opts)
  opts = check.options(opts, "selector", OPTIONS)
  local kind = opts.kind or "labels"
  if opts.labels_at and kind == "fields" then check.misuse("selector: option 'labels_at' is only for labels") end
  local made, why = parse(given, kind, opts.labels_at)
  if made then return made end
  check.misuse("selector: %s %s", type(given) == "string" and check.shown(given) or "argument #1", why)
end

return {
  new = new, parse = parse, test = test, is_empty = is_empty, indexable = indexable, index_text = index_text,
  methods = selector_methods, mt = selector_mt,
}
