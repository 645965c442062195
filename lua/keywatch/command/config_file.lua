-- SPDX-License-Identifier: MIT
--- config_file: reads flags from a file, as etcd does: a YAML map from names of flags to values. Flags about
-- certificates are in maps of their own. A name without a value is ignored. A duration is a number of nanoseconds, as
-- in etcd, or a text such as 5s.
--
-- The library lyaml reads YAML, and is used only here.

local compat = require "keywatch.support.compat"
local flags = require "keywatch.command.flags"

local ABSENT = "reading it needs the library lyaml: luarocks install lyaml, or on Debian apt-get install lua-yaml"

--- Nested maps. Each has a prefix that turns its names into flags, and a table of exceptions.
local SECTIONS = {
  ["client-transport-security"] = { prefix = "", others = {
    ["allowed-hostname"] = "client-cert-allowed-hostname",
    ["crl-file"] = "client-crl-file",
  } },
  ["peer-transport-security"] = { prefix = "peer-", others = {
    ["allowed-cn"] = "peer-cert-allowed-cn",
    ["allowed-hostname"] = "peer-cert-allowed-hostname",
  } },
}
local TOP = { prefix = "", others = {} }

--- Returns the text of a file; or nil and the reason.
local function read_all(path)
  local file, why = io.open(path)
  local text = file and file:read("*a")
  if file then file:close() end
  if text then return text end
  return nil, why and why:sub(#path + 3):lower() or "it cannot be read" -- without the path before the reason
end

--- Returns the map of a YAML text, and the value that represents null; or nil and the reason.
local function parse_yaml(text)
  local is_there, lyaml = pcall(require, "lyaml")
  if not is_there then
    local why = tostring(lyaml)
    if why:find("module 'lyaml' not found", 1, true) then return nil, ABSENT end
    return nil, "the library lyaml cannot be loaded: " .. why
  end
  local ok, map = pcall(lyaml.load, text)
  if not ok then return nil, "it is not YAML: " .. tostring(map) end
  if map == nil or map == lyaml.null then map = {} end
  if type(map) ~= "table" or map[1] ~= nil then return nil, "it must be a map" end
  return map, lyaml.null
end

--- Adds all names that have a value to `flat`, by flag, and returns `flat`.
local function flatten(map, section, null, flat)
  for key, value in pairs(map) do
    local name = section.others[key] or section.prefix .. tostring(key)
    if SECTIONS[name] and type(value) == "table" then
      flatten(value ~= null and value or {}, SECTIONS[name], null, flat)
    elseif value ~= null and value ~= "" then
      flat[name] = value
    end
  end
  return flat
end

--- Returns a number as digits: no flag takes an exponent.
local function digits_of(value)
  if compat.is_integer(value) then return ("%d"):format(value) end
  return (value % 1 == 0 and "%.0f" or "%.14g"):format(value)
end

--- Returns a value as the text of a flag; nil if the value is a map, or a list with maps or lists in it.
local function text_of(value, kind)
  if type(value) == "number" then return digits_of(value) .. (kind == "duration" and "ns" or "") end
  if type(value) ~= "table" then return tostring(value) end
  local items = {}
  for key in pairs(value) do
    local item = value[#items + 1]
    if type(key) ~= "number" or type(item) == "table" then return nil end
    items[#items + 1] = text_of(item)
  end
  return table.concat(items, ",")
end

--- Returns the value of a flag; or nil and the reason.
local function parse(name, value, kind)
  if not kind then return nil, ("there is no '%s'"):format(name) end
  local text = text_of(value, kind)
  if not text then return nil, ("'%s' must be a value or a list of values, not a map"):format(name) end
  local parsed, wanted = flags.parse(kind, text)
  if parsed == nil then return nil, ("'%s' must be %s, not '%s'"):format(name, wanted, text) end
  return parsed
end

--- Reads a file. `known` is { [flag] = kind }. Returns { [flag] = value }; or nil and the reason.
local function read(path, known)
  local text, why = read_all(path)
  if not text then return nil, why end
  local map, null = parse_yaml(text)
  if not map then return nil, null end
  local values = {}
  for name, value in pairs(flatten(map, TOP, null, {})) do
    local parsed, fault = parse(name, value, known[name])
    if parsed == nil then return nil, fault end
    values[name] = parsed
  end
  return values
end

return { read = read }
