-- SPDX-License-Identifier: MIT
--- selector: the filter of a list or a watch, from the texts of its label selector and its field selector.
--
-- A filter is { text, name, namespace, matches }. `text` is the same for equal filters. `name` and `namespace` are
-- those of metadata that the field selector asks for, or nil. matches(object) is true if an object meets both
-- selectors.

local labels = require "keywatch.kubernetes.label"
local order = require "keywatch.support.key_order"
local go_text = require "keywatch.kubernetes.go_text"
local selectors = require "keywatch.cache.selector"
local status_error = require "keywatch.kubernetes.status_error"

local MAX_BYTES = 64 * 1024 -- of a text
local TOO_LONG = ("the text of a selector has more than %d bytes"):format(MAX_BYTES)
local COMMON = { ["metadata.name"] = true, ["metadata.namespace"] = true }

-- {====== Parsing ======

--- Returns the reason why a label selector is invalid for Kubernetes; nil if it is valid.
local function label_trouble(selector)
  for _, requirement in ipairs(selector.list) do
    local why = labels.name_trouble(requirement.name)
    for _, text in ipairs(requirement.operator:find("in") and requirement.values or {}) do
      why = why or labels.value_trouble(text)
    end
    if why then return ("%s: Invalid value: %s"):format(requirement.name, why) end
  end
end

--- Returns the selector of a text: nil if everything matches; or false and the reason.
local function parse_labels(text)
  local made, why = selectors.parse(text, "labels")
  if made then why = label_trouble(made) end
  if why then return false, ("unable to parse requirement: %s"):format(why) end
  return not selectors.is_empty(made) and made or nil
end

--- Like parse_labels, for the fields of a kind.
local function parse_fields(kind, text)
  local made, why = selectors.parse(text, "fields")
  if not made then return false, ("invalid field selector: the text %s"):format(why) end
  for _, requirement in ipairs(made.list) do
    if not COMMON[requirement.name] and not (kind.selectable and kind.selectable[requirement.name]) then
      return false, "field label not supported: " .. requirement.name
    end
  end
  return not selectors.is_empty(made) and made or nil
end

-- }======

--- Returns the text of a selector, in which the order of requirements does not matter.
local function canonical(selector)
  local parts = {}
  for i, requirement in ipairs(selector and selector.list or {}) do
    local values = {}
    for j, text in ipairs(requirement.values) do values[j] = go_text.quoted(text) end
    table.sort(values, order.is_before)
    parts[i] = ("%s %s (%s)"):format(requirement.name, requirement.operator, table.concat(values, ","))
  end
  table.sort(parts, order.is_before)
  return table.concat(parts, ",")
end

--- Returns the value that a field selector asks for; nil if there is none.
local function exact(fields, name)
  for _, requirement in ipairs(fields and fields.list or {}) do
    if requirement.name == name and requirement.operator == "in" and requirement.values[1] ~= "" then
      return requirement.values[1]
    end
  end
end

--- Returns the function `matches` of a filter.
local function matcher(of_labels, of_fields)
  local test = selectors.test
  if not of_fields then return function(object) return test(of_labels, object) end end
  if not of_labels then return function(object) return test(of_fields, object) end end
  return function(object) return test(of_labels, object) and test(of_fields, object) end
end

--- Returns the filter of two texts, each of which may be nil or empty; nil if everything matches; or false and an
-- error.
local function parse(kind, label_text, field_text)
  label_text, field_text = label_text or "", field_text or ""
  if label_text == "" and field_text == "" then return nil end
  if math.max(#label_text, #field_text) > MAX_BYTES then return false, status_error.bad_request(TOO_LONG) end
  local of_labels, why = parse_labels(label_text)
  if of_labels == false then return false, status_error.bad_request(why) end
  local of_fields, trouble = parse_fields(kind, field_text)
  if of_fields == false then return false, status_error.bad_request(trouble) end
  if not of_labels and not of_fields then return nil end
  return {
    text = canonical(of_labels) .. ";" .. canonical(of_fields),
    name = exact(of_fields, "metadata.name"), namespace = exact(of_fields, "metadata.namespace"),
    matches = matcher(of_labels, of_fields),
  }
end

return { parse = parse }
