-- SPDX-License-Identifier: MIT
--- schema_checks: the keywords of a schema that check one value: bounds, lengths, patterns, formats, enumerations.
--
-- A check is a function of the value and of the budget of patterns (pattern.lua). It returns nil if the value is valid,
-- or a failure, a table of which some fields are set:
--
--   rule     what the field should be, such as "should be at least 3 chars long"
--   shown    the value as Kubernetes shows it with the rule; default: the value itself
--   reason   default: "FieldValueInvalid"
--   text     the whole message, instead of rule and shown
--   at       the index of the element of an array, from 1 on, that is invalid

local check = require "keywatch.support.check"
local formats = require "keywatch.kubernetes.format"
local go_text = require "keywatch.kubernetes.go_text"
local json = require "keywatch.json"
local patterns = require "keywatch.kubernetes.pattern"
local value = require "keywatch.kubernetes.value"

local CLOSE = 1e-9 -- a quotient that is so close to a whole number is one

-- By the names of keywords: the Lua types of their values.
local KEYWORDS = {
  enum = "table", minimum = "number", maximum = "number", exclusiveMinimum = "boolean", exclusiveMaximum = "boolean",
  multipleOf = "number", pattern = "string", minLength = "number", maxLength = "number", minItems = "number",
  maxItems = "number", uniqueItems = "boolean", minProperties = "number", maxProperties = "number", required = "table",
  ["x-kubernetes-list-type"] = "string", ["x-kubernetes-list-map-keys"] = "table",
}

local function number(bound) return go_text.number(bound) end

-- {====== Numbers ======

-- By keyword: functions of its value, the declared schema and the position for errors. Each returns a check; or nil.
local of_numbers, of_strings, of_arrays, of_objects = {}, {}, {}, {}

function of_numbers.minimum(least, declared)
  if declared.exclusiveMinimum then
    local failure = { rule = "should be greater than " .. number(least) }
    return function(found) return found <= least and failure or nil end
  end
  local failure = { rule = "should be greater than or equal to " .. number(least) }
  return function(found) return found < least and failure or nil end
end

function of_numbers.maximum(most, declared)
  if declared.exclusiveMaximum then
    local failure = { rule = "should be less than " .. number(most) }
    return function(found) return found >= most and failure or nil end
  end
  local failure = { rule = "should be less than or equal to " .. number(most) }
  return function(found) return found > most and failure or nil end
end

function of_numbers.multipleOf(factor, _, where)
  if factor <= 0 then check.misuse("%s: multipleOf must be more than 0", where) end
  local failure = { rule = "should be a multiple of " .. number(factor) }
  return function(found)
    if found % factor == 0 then return nil end
    local quotient = found / factor
    local distance = math.abs(quotient - math.floor(quotient + 0.5))
    return distance > CLOSE * math.max(1, math.abs(quotient)) and failure or nil
  end
end

function of_numbers.format(name)
  local range = formats.RANGES[name]
  if not range then return nil end
  local failure = { rule = ("should be a number of the format %s"):format(name) }
  return function(found) return (found < range[1] or found > range[2]) and failure or nil end
end

-- }======

-- {====== Strings ======

--- Returns the number of characters of a text in UTF-8.
local function length_of(text)
  local _, n = text:gsub("[^\128-\191]", "")
  return n
end

function of_strings.minLength(least)
  local failure = { rule = ("should be at least %d chars long"):format(least) }
  return function(found) return (#found < least or length_of(found) < least) and failure or nil end
end

function of_strings.maxLength(most)
  local failure = { reason = "FieldValueTooLong", text = ("Too long: may not be longer than %d"):format(most) }
  return function(found) return #found > most and length_of(found) > most and failure or nil end
end

function of_strings.pattern(text, _, where)
  local pattern, why = patterns.compile(text)
  if not pattern then check.misuse("%s: the pattern '%s' %s", where, text, why) end
  local failure = { rule = ("should match '%s'"):format(text) }
  local too_long = { rule = ("is too long to be matched against '%s'"):format(text) }
  return function(found, budget)
    local ok = pattern:matches(found, budget)
    if ok == nil then return too_long end
    return not ok and failure or nil
  end
end

function of_strings.format(name)
  local is_valid = formats.CHECKS[name]
  if not is_valid then return nil end
  return function(found)
    if is_valid(found) then return nil end
    return { reason = "FieldValueTypeInvalid", rule = ("must be of type %s: %s"):format(name, go_text.of(found)) }
  end
end

-- }======

-- {====== Arrays and objects ======

function of_arrays.minItems(least)
  return function(found)
    if #found >= least then return nil end
    return { rule = ("should have at least %d items"):format(least), shown = number(#found) }
  end
end

--- Returns the failure of a value that has too many elements.
local function too_many(found, most)
  return { reason = "FieldValueTooMany", text = ("Too many: %d: must have at most %d items"):format(found, most) }
end

function of_arrays.maxItems(most)
  return function(found) return #found > most and too_many(#found, most) or nil end
end

--- Returns what is equal for equal elements.
local function identity_of(element)
  return type(element) == "table" and json.encode(element, { sort_keys = true }) or element
end

--- Returns the index of the first element that occurs before, or nil. identity(element) returns what is compared.
local function first_duplicate(list, identity)
  local seen = {}
  for i = 1, #list do
    local id = identity(list[i])
    if seen[id] then return i end
    seen[id] = true
  end
end

function of_arrays.uniqueItems(is_wanted)
  local failure = { rule = "shouldn't contain duplicates", shown = '""' }
  return function(found) return is_wanted and first_duplicate(found, identity_of) and failure or nil end
end

--- Returns the failure of an element that occurs twice.
local function duplicate(at, shown)
  return { reason = "FieldValueDuplicate", text = "Duplicate value: " .. shown, at = at }
end

local function check_set(found)
  local at = first_duplicate(found, identity_of)
  return at and duplicate(at, go_text.of(found[at])) or nil
end

--- Returns the check of a list whose elements are objects that differ in their keys.
local function map_check(keys)
  local function key_of(element)
    local own = {}
    for _, key in ipairs(keys) do own[key] = value.is_object(element) and element[key] or nil end
    return own
  end
  return function(found)
    local at = first_duplicate(found, function(element) return identity_of(key_of(element)) end)
    return at and duplicate(at, go_text.of(key_of(found[at]))) or nil
  end
end

of_arrays["x-kubernetes-list-type"] = function(kind, declared, where)
  local keys = declared["x-kubernetes-list-map-keys"]
  if kind == "set" then return check_set end
  if kind == "map" and keys and keys[1] then return map_check(keys) end
  if kind == "map" then check.misuse("%s: x-kubernetes-list-map-keys is needed", where) end
  if kind ~= "atomic" then check.misuse("%s: there is no x-kubernetes-list-type '%s'", where, kind) end
end

--- Returns the number of members of an object.
local function size_of(object)
  local n = 0
  for _ in next, object do n = n + 1 end
  return n
end

function of_objects.minProperties(least)
  return function(found)
    local n = size_of(found)
    if n >= least then return nil end
    return { rule = ("should have at least %d properties"):format(least), shown = number(n) }
  end
end

function of_objects.maxProperties(most)
  return function(found)
    local n = size_of(found)
    return n > most and too_many(n, most) or nil
  end
end

-- }======

-- {====== Enumerations ======

--- Returns the check of an enumeration.
local function enum_check(list)
  local is_string, others, words = {}, {}, {}
  for i, one in ipairs(list) do
    if type(one) == "string" then is_string[one] = true else others[#others + 1] = one end
    words[i] = go_text.quoted(type(one) == "string" and one or json.encode(one, { sort_keys = true }))
  end
  local supported = ": supported values: " .. table.concat(words, ", ")
  return function(found)
    if type(found) == "string" and is_string[found] then return nil end
    for _, one in ipairs(others) do
      if value.equal(one, found) then return nil end
    end
    return { reason = "FieldValueNotSupported", text = "Unsupported value: " .. go_text.of(found) .. supported }
  end
end

-- }======

local TYPES = {
  integer = of_numbers, number = of_numbers, string = of_strings, array = of_arrays, object = of_objects, boolean = {},
}

--- Returns the lists of checks of a declared schema, by JSON type. `where` is the position of the schema, for errors.
local function compile(declared, where)
  local enum, lists = declared.enum and enum_check(declared.enum), {}
  for kind, makers in pairs(TYPES) do
    local list = { enum }
    for _, name in ipairs(value.names_of(makers)) do
      if declared[name] ~= nil then list[#list + 1] = makers[name](declared[name], declared, where) end
    end
    lists[kind] = list
  end
  return lists
end

return { compile = compile, KEYWORDS = KEYWORDS }
