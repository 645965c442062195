-- SPDX-License-Identifier: MIT
--- selector: which objects are wanted, by their labels or fields. In Kubernetes' text form, or as a table:
--
--   "app=web,tier in (a, b),env!=test,!old,version"
--   { app = "web", tier = { "a", "b" }, old = false, version = true }
--
-- A selector is a list of requirements, all of which an object has to meet. A requirement is about a name:
--
--   =, in        the object has the name, with one of the values
--   !=, notin    the object has not the name, or with none of the values
--   exists       the object has the name           not exists    it has not
--   >, <         the object has the name, with a whole number above, or below, the value
--
-- Values are texts. A number and a boolean of an object are compared as texts: 1 and 1.0 are "1".

local check = require "keywatch.support.check"

local selector_methods = {}
local selector_mt = { __name = "keywatch.selector", __index = selector_methods }

local OPERATORS = { ["="] = "in", ["=="] = "in", ["!="] = "notin", [">"] = ">", ["<"] = "<" }

--- Returns a value of an object as a text, or nil if it has none. Tables have no text, and match nothing but exists.
local function text_of(value)
  if type(value) == "string" then return value end
  if type(value) == "number" and value % 1 == 0 and value > -2 ^ 63 and value < 2 ^ 63 then
    return ("%d"):format(value)
  end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
end

--- True if a value is there. A decoder's null counts as absent.
local function is_there(value)
  return value ~= nil and type(value) ~= "userdata"
end

-- {====== Requirements ======

-- By operator: functions of a requirement and the value that an object has for its name.
local tests = {}

tests["in"] = function(one, value) return is_there(value) and one.values[text_of(value)] == true end
tests["notin"] = function(one, value) return not is_there(value) or one.values[text_of(value)] ~= true end
tests["exists"] = function(_, value) return is_there(value) end
tests["not exists"] = function(_, value) return not is_there(value) end

--- Returns the whole number of a text, or nil.
local function whole(text)
  return text and text:find("^-?%d+$") and tonumber(text) or nil
end

tests[">"] = function(one, value)
  local number = whole(text_of(value))
  return number ~= nil and number > one.bound
end

tests["<"] = function(one, value)
  local number = whole(text_of(value))
  return number ~= nil and number < one.bound
end

local function requirement(name, operator, list)
  local values = {}
  for _, value in ipairs(list or {}) do values[value] = true end
  return { name = name, operator = operator, values = values, list = list or {}, test = tests[operator] }
end

-- }======

-- {====== Texts ======

--- Returns the parts of a text between commas that are outside of parentheses.
local function split(text)
  local parts, depth, from = {}, 0, 1
  for at = 1, #text + 1 do
    local char = text:sub(at, at)
    if char == "(" then depth = depth + 1 elseif char == ")" then depth = depth - 1 end
    if at > #text or char == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, at - 1):match("^%s*(.-)%s*$")
      from = at + 1
    end
  end
  return parts
end

local NAME = "[%w][%w._/-]*"
local VALUE = "^[%w._/:@ -]*$"

--- Returns the values of "a, b"; or nil if one is malformed.
local function values_of(text)
  local list = {}
  for value in (text .. ","):gmatch("([^,]*),") do
    value = value:match("^%s*(.-)%s*$")
    if not value:find(VALUE) then return nil end
    list[#list + 1] = value
  end
  return list
end

--- Returns a requirement; or nil and what is wrong with its text.
local function parse_part(text)
  local name = text:match("^!%s*(" .. NAME .. ")$")
  if name then return requirement(name, "not exists") end
  name = text:match("^" .. NAME .. "$")
  if name then return requirement(name, "exists") end
  local set_name, operator, inside = text:match("^(" .. NAME .. ")%s+(%l+)%s*%(([^()]*)%)$")
  if set_name and (operator == "in" or operator == "notin") then
    local list = values_of(inside)
    if list then return requirement(set_name, operator, list) end
  end
  local left, sign, value = text:match("^(" .. NAME .. ")%s*([=!<>]=?)%s*(.*)$")
  if not left or not OPERATORS[sign] or not value:find(VALUE) then return nil, "cannot be understood" end
  local one = requirement(left, OPERATORS[sign], { value })
  if sign == ">" or sign == "<" then
    one.bound = whole(value)
    if not one.bound then return nil, "needs a whole number" end
  end
  return one
end

-- }======

-- {====== Tables ======

--- Returns the requirement that a field of a table stands for; or nil if the value cannot be meant.
local function of_field(name, value)
  if value == true then return requirement(name, "exists") end
  if value == false then return requirement(name, "not exists") end
  local text = text_of(value)
  if text then return requirement(name, "in", { text }) end
  if type(value) ~= "table" or #value == 0 then return nil end
  local list = {}
  for i, one in ipairs(value) do
    list[i] = text_of(one)
    if not list[i] then return nil end
  end
  return requirement(name, "in", list)
end

-- }======

--- Returns a selector of a text or a table; or nil and what is wrong, as the end of a sentence.
local function parse(given)
  local list = {}
  if type(given) == "string" then
    for _, part in ipairs(given:find("%S") and split(given) or {}) do
      local one, why = parse_part(part)
      if not one then return nil, ("has '%s', which %s"):format(part, why) end
      list[#list + 1] = one
    end
  elseif type(given) == "table" then
    for name, value in pairs(given) do
      local one = type(name) == "string" and of_field(name, value)
      if not one then return nil, ("has no meaning for %s"):format(check.shown(name)) end
      list[#list + 1] = one
    end
    table.sort(list, function(a, b) return a.name < b.name end)
  else
    return nil, "must be a text or a table"
  end
  return setmetatable({ list = list }, selector_mt)
end

--- True if all requirements are met. value_of(name) returns what the object has for a name.
function selector_methods:matches(value_of, object)
  for _, one in ipairs(self.list) do
    if not one.test(one, value_of(object, one.name)) then return false end
  end
  return true
end

--- True if every object matches.
function selector_methods:is_empty()
  return self.list[1] == nil
end

--- Returns the name and the values of a requirement that only objects with one of these values meet; or nil. For an
-- index of selectors.
function selector_methods:key()
  for _, one in ipairs(self.list) do
    if one.operator == "in" and #one.list > 0 then return one.name, one.list end
  end
end

--- Returns the selector in Kubernetes' text form.
function selector_mt:__tostring()
  local parts = {}
  for i, one in ipairs(self.list) do
    local operator, values = one.operator, table.concat(one.list, ",")
    if operator == "exists" then
      parts[i] = one.name
    elseif operator == "not exists" then
      parts[i] = "!" .. one.name
    elseif operator == ">" or operator == "<" then
      parts[i] = one.name .. operator .. values
    elseif #one.list == 1 then
      parts[i] = one.name .. (operator == "in" and "=" or "!=") .. values
    else
      parts[i] = ("%s %s (%s)"):format(one.name, operator, values)
    end
  end
  return table.concat(parts, ",")
end

return { parse = parse, text_of = text_of }
