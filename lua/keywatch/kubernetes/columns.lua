-- SPDX-License-Identifier: MIT
--- columns: the columns of tables, as kubectl prints them.
--
-- A column is declared as { name, type, path, format, description, priority }: `path` is one of field_path.lua. Columns
-- with a priority above 0 are shown by `kubectl get -o wide` only. The type "date" shows the time since then.

local check = require "keywatch.support.check"
local field_path = require "keywatch.kubernetes.field_path"
local json = require "keywatch.json"
local timestamp = require "keywatch.kubernetes.timestamp"
local value = require "keywatch.kubernetes.value"

local OPTIONS = {
  name = "text", type = check.one_of("integer", "number", "string", "boolean", "date"), path = "text",
  format = "string", description = "string", priority = "amount",
}

-- {====== Cells ======

--- Returns the age of a time; nil for something else.
local function age_of(found, now)
  if type(found) ~= "string" then return nil end
  local seconds = timestamp.parse(found)
  return seconds and timestamp.age(now - seconds) or "<invalid>"
end

-- By the type of a column: functions of a value and the present time. Each returns the cell, or nil.
local cells = { date = age_of }

function cells.string(found)
  if type(found) == "table" then return (json.encode(found, { sort_keys = true })) end
  if type(found) == "number" then return (json.encode(found)) end
  if type(found) == "string" then return found end
  return type(found) == "boolean" and tostring(found) or nil
end

function cells.integer(found)
  if type(found) ~= "number" then return nil end
  return value.type_of(found) == "integer" and found or found < 0 and math.ceil(found) or math.floor(found)
end

function cells.number(found) return type(found) == "number" and found or nil end
function cells.boolean(found)
  if type(found) == "boolean" then return found end
end

-- }======

--- Returns a column. Raises if its path is malformed.
local function make(declared, where)
  check.needed(declared, where, "name", "type", "path")
  local steps, why = field_path.compile(declared.path)
  if not steps then check.misuse("%s: the path '%s' %s", where, declared.path, why) end
  local cell = cells[declared.type]
  return {
    name = declared.name, type = declared.type, format = declared.format or "", priority = declared.priority or 0,
    description = declared.description or "",
    read = function(object, now)
      local found = field_path.find(object, steps)
      if value.is_nothing(found) then return nil end
      return cell(found, now or timestamp.now())
    end,
  }
end

--- The first column.
local function name_column()
  return {
    name = "Name", type = "string", format = "name", priority = 0, description = "The name of the object",
    read = function(object) return object.metadata and object.metadata.name end,
  }
end

local AGE = {
  name = "Age", type = "date", path = ".metadata.creationTimestamp",
  description = "The time since the object was created",
}

--- Returns the columns of a list of declared ones, the name before them; or the name and the age if it is nil. Raises
-- if a column is malformed.
local function compile(declared, where)
  local list = { name_column() }
  for i, one in ipairs(declared or { AGE }) do
    local place = ("%s: columns[%d]"):format(where, i)
    list[i + 1] = make(check.options(one, place, OPTIONS), place)
  end
  return list
end

return { compile = compile }
