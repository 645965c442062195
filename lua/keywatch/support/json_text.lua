-- SPDX-License-Identifier: MIT
--- json_text: changes members of a JSON object in its text, and leaves every other byte unchanged. Decoding and
-- encoding the whole object would change large numbers, empty lists and the order of members.
--
-- The texts are those that keywatch.json decodes. Names of members are compared after their escapes were resolved. If a
-- name occurs several times the last member counts, as in keywatch.json.
--
-- An item is a member of an object, or an element of a list: { name = of a member, first = index of its first byte,
-- value = index of its value, after = index after it }. Items are in a list, in order, with the field `closing`, the
-- index of the closing bracket.

local core = require "keywatch.core"

-- {====== Reading ======

--- Returns the items of the object or list at an index; or nil if there is none, or if it is incomplete.
local function items_of(text, at)
  local places = core.json_items(text, at)
  if not places then return nil end
  local items = { closing = places[#places] }
  for i = 1, #places - 1, 4 do
    local item = { name = nil, first = places[i], value = places[i + 2], after = places[i + 3] }
    if item.value > item.first then item.name = core.json_decode(text:sub(item.first, places[i + 1] - 1)) end
    items[#items + 1] = item
  end
  return items
end

--- Returns the items of a text that is one JSON object; or nil if the text is not an object.
local function open(text)
  local at = text:find("{", 1, true)
  if not at or text:find("[^ \t\r\n]") < at then return nil end
  local items = items_of(text, at)
  if not items or text:find("[^ \t\r\n]", items.closing + 1) then return nil end
  return items
end

--- Returns the last member of a name, or nil.
local function find(items, name)
  for i = #items, 1, -1 do
    if items[i].name == name then return items[i] end
  end
end

--- Returns the JSON of an item's value.
local function value_of(text, item)
  return text:sub(item.value, item.after - 1)
end

--- Returns the value of an item if it is a string, else nil.
local function string_of(text, item)
  if text:sub(item.value, item.value) ~= '"' then return nil end
  return core.json_decode(value_of(text, item))
end

-- }======

-- {====== Changing ======

--- Returns a text in which the value of an item is replaced by another, which is JSON.
local function replace(text, item, value)
  return text:sub(1, item.value - 1) .. value .. text:sub(item.after)
end

--- Returns a text with another item, which is JSON, at the end of an object or a list.
local function append(text, items, json)
  local last = items[#items]
  local from = last and last.after or items.closing
  return text:sub(1, from - 1) .. (last and "," or "") .. json .. text:sub(from)
end

--- Returns a text without the items for which must_go(item) is true.
local function remove(text, items, must_go)
  local parts, last = {}, nil
  for i, item in ipairs(items) do
    if not must_go(item) then
      parts[#parts + 1] = text:sub(last and items[i - 1].after or item.first, item.first - 1)
      parts[#parts + 1] = text:sub(item.first, item.after - 1)
      last = item
    end
  end
  if not items[1] then return text end
  return text:sub(1, items[1].first - 1) .. table.concat(parts) .. text:sub(items[#items].after)
end

-- }======

return {
  open = open, items_of = items_of, find = find, value_of = value_of, string_of = string_of, replace = replace,
  append = append, remove = remove,
}
