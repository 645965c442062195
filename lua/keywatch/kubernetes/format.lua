-- SPDX-License-Identifier: MIT
--- format: the formats of strings and numbers that a schema may name. Unknown formats are not checked, as in
-- Kubernetes.

local timestamp = require "keywatch.kubernetes.timestamp"

local MAX_HOST = 253 -- bytes

-- By the name of a format of numbers: the least and the greatest.
local RANGES = { int32 = { -2147483648, 2147483647 } }

-- By the name of a format of strings: functions that are true for a valid text.
local CHECKS = {}

CHECKS["date-time"] = function(text) return timestamp.parse(text) ~= nil end
CHECKS.datetime = CHECKS["date-time"]

function CHECKS.date(text)
  return text:find("^[0-9][0-9][0-9][0-9]%-[0-9][0-9]%-[0-9][0-9]$") ~= nil
    and timestamp.parse(text .. "T00:00:00Z") ~= nil
end

local UNITS, LONG_UNITS = {}, {}
for unit in ("h m s ms us ns \194\181s \206\188s"):gmatch("%S+") do UNITS[unit] = true end
for unit in ("day week hour hr minute min second sec"):gmatch("%S+") do
  LONG_UNITS[unit], LONG_UNITS[unit .. "s"] = true, true
end
LONG_UNITS.d, LONG_UNITS.w = true, true

--- True for a duration of Go, such as "1h30m" or "-1.5s"; or one such as "3 days".
function CHECKS.duration(text)
  if #text > MAX_HOST then return false end
  if LONG_UNITS[text:match("^[0-9]+ ?([a-z]+)$") or ""] then return true end
  local at = text:match("^[+-]?()")
  if text:sub(at) == "0" then return true end
  repeat
    local unit, after = text:match("^[0-9]+%.?[0-9]*([^0-9.]+)()", at)
    if not unit or not UNITS[unit] then return false end
    at = after
  until at > #text
  return true
end

--- True for base64.
function CHECKS.byte(text)
  local packed = text:gsub("[\r\n]", "")
  return #packed % 4 == 0 and packed:find("^[A-Za-z0-9+/]*=?=?$") ~= nil
end

local HEX = "[0-9a-fA-F]"
local UUID = "^" .. HEX:rep(8) .. "%-?" .. HEX:rep(4) .. "%-?%s" .. HEX:rep(3) .. "%-?%s" .. HEX:rep(3) .. "%-?"
  .. HEX:rep(12) .. "$"

--- Returns the check of UUIDs, with classes of the first characters of the third and the fourth group.
local function uuid(version, variant)
  local pattern = UUID:gsub("%%s", version, 1):gsub("%%s", variant, 1)
  return function(text) return text:find(pattern) ~= nil end
end

CHECKS.uuid = uuid(HEX, HEX)
CHECKS.uuid3 = uuid("3", HEX)
CHECKS.uuid4 = uuid("4", "[89abAB]")
CHECKS.uuid5 = uuid("5", "[89abAB]")

function CHECKS.ipv4(text)
  local parts = { text:match("^([0-9]+)%.([0-9]+)%.([0-9]+)%.([0-9]+)$") }
  for _, part in ipairs(parts) do
    if #part > 3 or tonumber(part) > 255 or part:find("^0.") then return false end
  end
  return parts[1] ~= nil
end

--- Returns the number of 16-bit groups of a part of an IPv6 address; nil if it is malformed.
local function groups_of(part)
  local n = 0
  if part == "" then return 0 end
  for group in (part .. ":"):gmatch("([^:]*):") do
    n = n + 1
    if #group > 4 or not group:find("^" .. HEX .. "+$") then return nil end
  end
  return n
end

function CHECKS.ipv6(text)
  if #text > 45 or not text:find(":", 1, true) then return false end
  local head, ipv4 = text:match("^(.*:)([0-9.]+)$")
  if ipv4 and ipv4:find(".", 1, true) then
    if not CHECKS.ipv4(ipv4) then return false end
    text = head .. "0:0"
  end
  local before, after = text:match("^(.-)::(.*)$")
  if not before then return groups_of(text) == 8 end
  local n, m = groups_of(before), groups_of(after)
  return n ~= nil and m ~= nil and n + m < 8
end

function CHECKS.cidr(text)
  local address, bits = text:match("^(.*)/([0-9]+)$")
  if not address or #bits > 3 or bits:find("^0.") then return false end
  if CHECKS.ipv4(address) then return tonumber(bits) <= 32 end
  return CHECKS.ipv6(address) and tonumber(bits) <= 128
end

function CHECKS.mac(text)
  local pair = HEX .. HEX
  for _, sign in ipairs { ":", "%-" } do
    if text:find("^" .. pair .. (sign .. pair):rep(5) .. "$") then return true end
    if text:find("^" .. pair .. (sign .. pair):rep(7) .. "$") then return true end
  end
  return text:find("^" .. pair:rep(2) .. ("%." .. pair:rep(2)):rep(2) .. "$") ~= nil
end

function CHECKS.hostname(text)
  if #text > MAX_HOST or text == "" then return false end
  for part in (text:gsub("%.$", "") .. "."):gmatch("([^.]*)%.") do
    if #part > 63 or not part:find("^[A-Za-z0-9_-]+$") or part:find("^%-") or part:find("%-$") then return false end
  end
  return true
end

function CHECKS.uri(text)
  return text:find("^[A-Za-z][A-Za-z0-9+.-]*:[^%s%c]+$") ~= nil or text:find("^/[^%s%c]*$") ~= nil
end

function CHECKS.email(text)
  local name, host = text:match("^([^@%s<>()]+)@([^@]+)$")
  return name ~= nil and CHECKS.hostname(host)
end

return { RANGES = RANGES, CHECKS = CHECKS }
