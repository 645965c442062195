-- SPDX-License-Identifier: MIT
--- selector: selects objects by their labels or by their fields. See selector_text.lua for the text forms. As
-- a table:
--
--   { app = "web",                          the name has this value: a string, a number or a boolean
--     tier = { "a", "b" },                  one of these values
--     env = { not_in = { "test" } },        none of these values, or no such name
--     old = { exists = false },             there is no such name; with true: there is one
--     generation = { above = 3, below = 9 } }   a whole number between the two
--
-- A selector is a list of requirements; an object must meet all of them. A label is looked up by its whole name in the
-- table of labels. A field is a path: "spec.nodeName" is object.spec.nodeName; a backslash escapes a dot in a name.
--
-- Values are compared as texts. The texts of a number are the same on every VM, and 1 and 1.0 are "1". As in Kubernetes
-- a field that is absent has the empty value, and a label that is absent has none. A decoder's null is absent.

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

--- Returns a value of an object as a text; nil for a value without a text, such as a table.
local function text_of(value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return text_of_number(value) end
  if kind == "boolean" then return value and "true" or "false" end
end

--- True if a value is present. A decoder's null is absent.
local function is_there(value)
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

--- Returns the value of an object for the name of a requirement, or nil.
local function value_of(one, object)
  local found = follow(object, one.path)
  if one.label == nil then return found end
  if type(found) == "table" then return found[one.label] end
end

-- }======

-- {====== Requirements ======

-- By operator: functions of a requirement and of the object's value for its name.
local tests = {}

tests["in"] = function(one, value)
  if not is_there(value) then return one.takes_absent end
  local text = text_of(value)
  return text ~= nil and one.set[text] == true
end

tests["notin"] = function(one, value)
  if not is_there(value) then return not one.takes_absent end
  local text = text_of(value)
  return text == nil or one.set[text] ~= true
end

tests["exists"] = function(_, value) return is_there(value) end
tests["not exists"] = function(_, value) return not is_there(value) end

--- Returns a text of a whole number in two parts that sort as the number does: its sign and length, and its digits.
local function sortable(text)
  local sign, digits = text:match("^([+-]?)0*(%d+)$")
  local is_negative = sign == "-" and digits ~= "0"
  return is_negative and -#digits or #digits, digits, is_negative
end

--- True if the whole number of one text is below that of another. Numbers of LuaJIT are too short for 64 bits.
local function is_below(a, b)
  local length, digits, is_negative = sortable(a)
  local other_length, other_digits = sortable(b)
  if length ~= other_length then return length < other_length end
  if is_negative then return digits > other_digits end
  return digits < other_digits
end

tests[">"] = function(one, value)
  local text = is_there(value) and text_of(value)
  return text and selector_text.is_whole(text) and is_below(one.values[1], text) or false
end

tests["<"] = function(one, value)
  local text = is_there(value) and text_of(value)
  return text and selector_text.is_whole(text) and is_below(text, one.values[1]) or false
end

--- Completes a requirement { name, operator, values } for labels at a path, or for fields.
local function complete(one, labels_path)
  one.set, one.test = {}, tests[one.operator]
  for _, value in ipairs(one.values) do one.set[value] = true end
  one.path = labels_path or path_of(one.name)
  if labels_path then one.label = one.name end
  one.takes_absent = not labels_path and one.set[""] == true -- an absent field has the empty value
  return one
end

-- }======

-- {====== Tables ======

--- Returns the texts of a value, or of a list of values; nil if it is neither.
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

-- By name: functions of the given value; each returns the operator and the values, or nil.
local words = {}

function words.not_in(given) return "notin", texts_of(given) end

function words.exists(given)
  if type(given) == "boolean" then return given and "exists" or "not exists", {} end
end

--- Returns the text of a whole number in a list, or nil.
local function bound_of(given)
  local text = type(given) == "number" and text_of(given) or given
  if type(text) == "string" and selector_text.is_whole(text) then return { text } end
end

function words.above(given) return ">", bound_of(given) end
function words.below(given) return "<", bound_of(given) end

--- Adds the requirements of a field of a selector table. Returns false if the field is malformed.
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

--- Returns the requirements of a table, in the order of names; or nil and the reason.
local function of_table(given)
  local list = {}
  for name, value in pairs(given) do
    if type(name) ~= "string" or name == "" or not add_field(list, name, value) then
      return nil, "has no meaning for " .. check.shown(name)
    end
  end
  table.sort(list, function(a, b)
    if a.name ~= b.name then return a.name < b.name end
    return a.operator < b.operator
  end)
  return list
end

-- }======

--- Returns a selector of a kind, "labels" or "fields". Labels are at the path `labels_at`. Returns nil and the reason,
-- as the end of a sentence.
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
    local one = list[i]
    if not one.test(one, value_of(one, object)) then return false end
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

--- Returns the requirement with the fewest values that an index can serve, because only objects with one of these
-- values meet it; or nil.
local function indexable(self)
  local best
  for _, one in ipairs(self.list) do
    if one.operator == "in" and (not best or #one.values < #best.values) then best = one end
  end
  return best
end

--- Returns the text by which an object is found in an index of a requirement's name, or nil.
local function index_text(one, object)
  local value = value_of(one, object)
  if is_there(value) then return text_of(value) end
  if one.label == nil then return "" end
end

-- {====== Texts ======

local SIGNS = { ["in"] = "=", ["notin"] = "!=", [">"] = ">", ["<"] = "<" }

--- Returns the text of a requirement.
local function shown(one, kind)
  if one.operator == "exists" then return one.name end
  if one.operator == "not exists" then return "!" .. one.name end
  if #one.values ~= 1 then return ("%s %s (%s)"):format(one.name, one.operator, table.concat(one.values, ",")) end
  local value = one.values[1]
  if kind == "fields" then value = value:gsub("[\\,=]", "\\%0") end
  return one.name .. SIGNS[one.operator] .. value
end

--- Returns the selector in its text form.
function selector_mt:__tostring()
  local parts = {}
  for i, one in ipairs(self.list) do parts[i] = shown(one, self.kind) end
  return table.concat(parts, ",")
end

-- }======

local OPTIONS = { kind = check.one_of("labels", "fields"), labels_at = "string" }

--- Returns a selector of a text or a table. Raises if that is malformed.
local function new(given, opts)
  opts = check.options(opts, "selector", OPTIONS)
  local kind = opts.kind or "labels"
  if opts.labels_at and kind == "fields" then check.misuse("selector: option 'labels_at' is for labels") end
  local made, why = parse(given, kind, opts.labels_at)
  if made then return made end
  check.misuse("selector: %s %s", type(given) == "string" and check.shown(given) or "argument #1", why)
end

return {
  new = new, parse = parse, test = test, is_empty = is_empty, indexable = indexable, index_text = index_text,
  methods = selector_methods, mt = selector_mt,
}
